"""A comparison as a table for the terminal."""

from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.results.page import choice
from lab.results.row import Row, row_from_json
from lab.results.statistics import Spread


def show(console: Console, results: dict[str, Any]) -> None:
    """Print the table, what FedDC gains, and what the figures are."""
    rows = [row_from_json(values) for values in results["rows"]]
    console.print(table(results, rows))
    for line in gain_lines(results):
        console.print(line, highlight=False)
    for line in remarks(results):
        console.print(line, highlight=False, style="dim")


def table(results: dict[str, Any], rows: list[Row]) -> Table:
    seeds = len(results["seeds"])
    made = Table(
        title=f"{results['title']} ({results['setting']} setting, {seeds} "
        f"seed{'s' if seeds > 1 else ''}); test accuracy in %",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    has_variants = any(row.variant for row in rows)
    balanced = results["judged"] == "balanced-accuracy" or _is_uneven(rows)
    made.add_column("method", no_wrap=True)
    columns = ["last\naggregate", *(["balanced"] if balanced else []), "mean over\nclients"]
    for title in [*columns, "paper", "learning\nrate", "aggre-\ngations", "models\nsent"]:
        made.add_column(title, justify="right", no_wrap=True)
    before = None
    for row in rows:
        if has_variants and row.variant != before:
            made.add_section()
            made.add_row(f"[bold]{escape(row.variant)}")
        before = row.variant
        shown = [row.label, _spread(row.aggregate, row)]
        shown += [_spread(row.balanced, row)] if balanced else []
        shown += [
            _spread(row.clients, row) if row.clients or row.diverged else "–",
            paper(row),
            _rates(row.learning_rates),
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
            f"{_difference(gain['gain'])}: {gain['verdict']}{paper_gain(gain)}"
        )
    return lines


def paper_gain(gain: dict[str, Any]) -> str:
    return "" if gain["paper"] is None else f"; the paper {gain['paper']:+.1f}"


def _difference(gain: dict[str, Any]) -> str:
    text = f"{gain['mean']:+.1f} points"
    if gain["interval"]:
        low, high = gain["interval"]
        return f"{text} (95 % interval {low:+.1f} … {high:+.1f}, {len(gain['values'])} seeds)"
    low, high = min(gain["values"]), max(gain["values"])
    return text if low == high else f"{text} (seeds from {low:+.1f} to {high:+.1f})"


def remarks(results: dict[str, Any]) -> list[str]:
    """Return what one must know to read the table."""
    lines = ["± is the largest deviation from the mean over seeds, as in the paper."]
    lines.append(choice(results))
    if results["test_sample"]:
        lines.append(
            f"Clients' own models and the curves: on {results['test_sample']:,} random test "
            "examples; the last aggregate on all."
        )
    if results["note"]:
        lines.append(results["note"])
    return lines


def paper(row: Row) -> str:
    if row.paper is None:
        return "–"
    return f"{row.paper:g}" + (f" ± {row.paper_deviation:g}" if row.paper_deviation else "")


def _spread(value: Spread | None, row: Row) -> str:
    if value is None:
        return "diverged" if row.diverged else "–"
    text = f"{value.mean:.1f}"
    if len(value.values) > 1:
        text += f" ± {value.max_deviation:.1f}"
    return text + (f" ({row.diverged} diverged)" if row.diverged else "")


def _rates(rates: list[float]) -> str:
    """Return the rate that all seeds chose, or the range of what they chose."""
    if not rates:
        return "–"
    return f"{rates[0]:g}" if len(rates) == 1 else f"{rates[0]:g} … {rates[-1]:g}"


def _is_uneven(rows: list[Row]) -> bool:
    """Whether balanced accuracy tells something that accuracy does not."""
    both = [(row.aggregate, row.balanced) for row in rows]
    return any(one and other and abs(one.mean - other.mean) > 1 for one, other in both)
