"""The findings of comparisons, in sentences that claim no more than the seeds support."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from lab.results.origin import Results
from lab.results.row import Row, rows_of, spread_from_json
from lab.results.text import (
    difference_text,
    edges,
    is_turned,
    paper_text,
    spread_text,
    verdict_text,
)

VERDICTS = ("ahead", "undecided", "behind")


def findings(results: Results) -> Iterator[str]:
    """Yield a sentence for each comparison: the measured difference, and the paper's."""
    rows = rows_of(results)
    for gain in results["gains"]:
        place = f"{gain['variant']}: " if gain["variant"] else ""
        measured = f"{gain['method']} over {gain['over_label']} {difference_text(gain['gain'])}"
        measured += _accuracies(gain, rows)
        if results["judged"] == "balanced-accuracy" and gain["balanced_gain"]:
            measured += f", in balanced accuracy {difference_text(gain['balanced_gain'])}"
        verdict = against_paper(gain, demonstration=results["preset"] == "laptop")
        yield f"{place}{measured}: {verdict}{_best(gain)}{_at_edges(gain, rows)}"


def _accuracies(gain: dict[str, Any], rows: list[Row]) -> str:
    """Add both accuracies as the paper prints them, mean ± largest deviation, and the paper's."""
    here = [row for row in rows if row.variant == gain["variant"]]
    pair = [
        *(row for row in here if row.label == gain["method"]),
        *(row for row in here if row.method == gain["over"]),
    ]
    ours = " against ".join(spread_text(row.headline, row, interval=False) for row in pair)
    if gain["paper"] is None:
        return f", {ours}"
    return f", {ours} (in the paper {' against '.join(paper_text(row) for row in pair)})"


def against_paper(gain: dict[str, Any], *, demonstration: bool = False) -> str:
    """Return the verdict on a difference, and whether the paper's is within its bounds.

    A demonstration is too far from the paper's regime for more than both numbers.
    """
    verdict, paper = gain["verdict"], gain["paper"]
    if paper is None:
        return f"{verdict_text(gain)}; the paper has no figure for it."
    reported = f"the paper reports {paper:+.1f}"
    if demonstration:
        return f"{verdict_text(gain)}; {reported} in its own regime."
    if gain.get("stable") is False:
        return f"{verdict_text(gain)}; {reported}: no verdict, it depends on the rounds."
    difference = spread_from_json(gain["gain"])
    if verdict not in VERDICTS or difference is None:
        return f"{verdict}; {reported}."
    low, high = difference.bounds
    if low <= paper <= high:
        if verdict == "undecided":
            return f"undecided; {reported}: these data neither confirm nor refute it."
        return f"{verdict}; {reported}."
    if verdict != ("ahead" if paper > 0 else "behind"):
        return f"**{verdict}; {reported}: not reproduced.**"
    if max(abs(low), abs(high)) < abs(paper) / 2:
        return f"{verdict}, **but by less than half of the {paper:+.1f} that the paper reports.**"
    return f"{verdict}; {reported}, {'less' if abs(low) > abs(paper) else 'more'} than that."


def _best(gain: dict[str, Any]) -> str:
    """Add the difference in the best rounds by validation data, where it is known."""
    best = gain.get("best")
    return (
        f" In the best round of each by validation data: {difference_text(best)}." if best else ""
    )


def _at_edges(gain: dict[str, Any], rows: list[Row]) -> str:
    """List the methods of a lead whose learning rate was at an edge of the grid."""
    found = marked_lead(gain, rows)
    return f" Learning rates at an edge of the grid: {', '.join(found)}." if found else ""


def marked_lead(gain: dict[str, Any], rows: list[Row]) -> list[str]:
    """Return the methods of a lead with a learning rate at an edge of a grid of three or more."""
    if gain["verdict"] != "ahead":
        return []
    return [
        f"{row.label} {edges(row)}"
        for row in rows
        if row.variant == gain["variant"]
        and (row.label == gain["method"] or row.method == gain["over"])
        and edges(row)
        and len(row.candidates) > 2
    ]


def counts(all_results: Sequence[Results]) -> Iterator[str]:
    """Count the verdicts; a comparison that occurs in several ablations counts once."""
    gains = {
        (gain["over"], tuple(gain["gain"]["values"])): gain
        for results in all_results
        for gain in results["gains"]
    }
    for over, label in (("fedavg-b", "FedAvg(b)"), ("fedavg-1", "FedAvg(1)")):
        found = Counter(
            "undecided" if is_turned(gain) else gain["verdict"]
            for (other, _), gain in gains.items()
            if other == over
        )
        listed = ", ".join(f"{verdict} in {found[verdict]}" for verdict in VERDICTS)
        yield f"Against {label}, of {found.total()} comparisons: {listed}."
