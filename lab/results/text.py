"""Formatting of results, for the tables in the terminal and in the documentation."""

from collections.abc import Iterable
from typing import Any

from lab.results.row import Row
from lab.results.statistics import Spread
from learning.privacy.accountant import geyer_epsilon

EDGES = "↑ and ↓ mark the largest and the smallest learning rate of the grid"


def line(*cells: object) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def spread_text(value: Spread | None, row: Row, *, interval: bool = True) -> str:
    """Format mean, largest deviation and, with `interval`, the interval of the mean."""
    if value is None:
        return "diverged" if row.diverged else "–"
    text = f"{value.mean:.1f}"
    if len(value.values) > 1:
        text += f" ± {value.max_deviation:.1f}"
    if value.interval and interval:
        text += f" [{value.interval[0]:.1f}, {value.interval[1]:.1f}]"
    return text + (f" ({row.diverged} diverged)" if row.diverged else "")


def paper_text(row: Row) -> str:
    """Format the paper's accuracy with its printed deviation."""
    if row.paper is None:
        return "–"
    return f"{row.paper:g}" + (f" ± {row.paper_deviation:g}" if row.paper_deviation else "")


def epsilon_text(row: Row) -> str:
    """Format what a patient or a hospital spends; beside the paper's mechanism, the paper's ε."""
    if row.epsilon is None:
        return "–"
    text = "> 1000" if row.epsilon == "unbounded" else f"{row.epsilon:.4g}"
    noise = row.settings.get("noise-multiplier")
    if row.settings.get("privacy-unit") == "hospital" and noise:
        text += f" (Geyer: {geyer_epsilon(noise, row.delta):.2g})"
    return text


def epsilon_title(rows: Iterable[Row]) -> str:
    """Return the title of the column of ε, with its δ."""
    deltas = sorted({row.delta for row in rows if row.epsilon is not None})
    return f"ε at δ = {', '.join(f'{delta:g}' for delta in deltas)}"


def rates_text(row: Row) -> str:
    """Format the chosen learning rates, with a mark at those at an edge of the grid."""
    shown = (f"{rate:g} {_edge(row, rate)}".strip() for rate in row.learning_rates)
    return ", ".join(shown) or "–"


def edges(row: Row) -> str:
    """Return the marks of the row's learning rates at an edge of the grid."""
    return "".join(_edge(row, rate) for rate in row.learning_rates)


def _edge(row: Row, rate: float) -> str:
    grid = [float(tried) for tried in row.candidates]
    if not grid:
        return ""  # there was no choice
    return "↓" if rate <= min(grid) else "↑" if rate >= max(grid) else ""


def shown(gain: dict[str, Any]) -> dict[str, Any]:
    """Return the difference that the verdict is based on."""
    found: dict[str, Any] = gain["balanced_gain"] if gain.get("by_balanced") else gain["gain"]
    return found


def verdict_text(gain: dict[str, Any]) -> str:
    """Return the verdict, with the metric where it is not the accuracy."""
    by = ", by balanced accuracy" if gain.get("by_balanced") else ""
    return f"{gain['verdict']}{' at the end, but not stable' if is_turned(gain) else ''}{by}"


def is_turned(gain: dict[str, Any]) -> bool:
    """Return whether a lead changed its sign in the last third of the rounds."""
    return gain.get("stable") is False and gain["verdict"] in ("ahead", "behind")


def difference_text(gain: dict[str, Any]) -> str:
    """Format a paired difference with its interval, or with the range of the seeds."""
    text = f"{gain['mean']:+.1f} points"
    if gain["interval"]:
        low, high = gain["interval"]
        return f"{text} (95 % interval {low:+.1f} … {high:+.1f})"
    low, high = min(gain["values"]), max(gain["values"])
    return text if len(gain["values"]) == 1 else f"{text} (seeds {low:+.1f} … {high:+.1f})"
