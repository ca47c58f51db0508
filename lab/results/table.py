"""Print a comparison as a table in the terminal."""

from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.results.findings import marked_lead
from lab.results.origin import choice, test_sets
from lab.results.row import Row, rows_of
from lab.results.text import (
    EDGES,
    difference_text,
    edges,
    epsilon_text,
    epsilon_title,
    is_turned,
    paper_text,
    rates_text,
    spread_text,
)


def show(console: Console, results: dict[str, Any]) -> None:
    """Print the table, FedDC's gains, and remarks."""
    rows = rows_of(results)
    console.print(table(results, rows))
    for line in gain_lines(results):
        console.print(line, highlight=False)
    for line in remarks(results):
        console.print(line, highlight=False, style="dim")


def table(results: dict[str, Any], rows: list[Row]) -> Table:
    seeds = len(results["seeds"])
    made = Table(
        title=f"{results['title']} ({results['preset']} preset, {seeds} "
        f"seed{'s' if seeds > 1 else ''}); test accuracy in %",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    has_variants = any(row.variant for row in rows)
    balanced = results["judged"] == "balanced-accuracy" or _is_uneven(rows)
    made.add_column("method", no_wrap=True)
    in_paper = any(row.paper is not None for row in rows)
    columns = ["last\naggregate", *(["balanced"] if balanced else []), "mean over\nclients"]
    columns += ["paper"] if in_paper else []
    private = any(row.epsilon is not None for row in rows)
    columns += [epsilon_title(rows).replace(" at ", "\nat ")] if private else []
    for title in [*columns, "learning\nrate", "aggre-\ngations", "models\nsent"]:
        made.add_column(title, justify="right", no_wrap=True)
    before = None
    for row in rows:
        if has_variants and row.variant != before:
            made.add_section()
            made.add_row(f"[bold]{escape(row.variant)}")
        before = row.variant
        shown = [row.label, spread_text(row.aggregate, row, interval=False)]
        shown += [spread_text(row.balanced, row, interval=False)] if balanced else []
        clients = row.clients or row.diverged
        shown += [spread_text(row.clients, row, interval=False) if clients else "–"]
        shown += [paper_text(row)] if in_paper else []
        shown += [epsilon_text(row)] if private else []
        shown += [
            rates_text(row),
            str(row.aggregations or "–"),
            f"{row.messages:,}" if row.messages else "–",
        ]
        made.add_row(*shown)
    return made


def gain_lines(results: dict[str, Any]) -> list[str]:
    """Return a sentence for each difference."""
    lines = []
    for gain in results["gains"]:
        place = f"{gain['variant']}: " if gain["variant"] else ""
        lines.append(
            f"{place}{gain['method']} over {gain['over_label']}: "
            f"{difference_text(gain['gain'])}: {gain['verdict']}"
            f"{' at the end, but not stable' if is_turned(gain) else ''}{paper_gain(gain)}"
        )
    return lines


def paper_gain(gain: dict[str, Any]) -> str:
    if gain.get("by_balanced"):
        return f", by balanced accuracy ({gain['balanced_gain']['mean']:+.1f} points)"
    return "" if gain["paper"] is None else f"; the paper {gain['paper']:+.1f}"


def remarks(results: dict[str, Any]) -> list[str]:
    """Return explanations of the table."""
    lines = ["± is the largest deviation from the mean over seeds, as in the paper."]
    lines.append(choice(results))
    rows = rows_of(results)
    if any(edges(row) for row in rows):
        lines.append(f"{EDGES}.")
    if found := [each for gain in results["gains"] for each in marked_lead(gain, rows)]:
        lines.append(f"FedDC leads with these at an edge: {', '.join(dict.fromkeys(found))}.")
    lines += test_sets(results)
    if results["note"]:
        lines.append(results["note"])
    return lines


def _is_uneven(rows: list[Row]) -> bool:
    """Return whether accuracy and balanced accuracy differ by more than a point."""
    both = [(row.aggregate, row.balanced) for row in rows]
    return any(one and other and abs(one.mean - other.mean) > 1 for one, other in both)
