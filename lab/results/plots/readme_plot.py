"""The README's plot: FedDC beside FedAvg(1) and FedAvg(b), over rounds and at the end."""

import hashlib
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.experiments import ExperimentError
from lab.results.plots.plot_style import Curves, styled
from lab.results.row import Row, rows_of
from protocol.canonical import canonical_bytes

EXPERIMENT = "mnist"
METHODS = ("feddc", "fedavg-1", "fedavg-b")


def draw_readme_plot(results: dict[str, Any], curves: Curves, path: Path) -> None:
    """Draw test accuracy over rounds, and each seed's accuracy after the last round.

    The file names what it was drawn from (`digest`), so that a test can compare them.
    """
    rows = {row.method: row for row in rows_of(results) if row.method in METHODS}
    styles = dict(styled(list(rows.values())))
    figure = Figure(figsize=(8.4, 4.0), dpi=150, layout="constrained")
    over_rounds, at_end = figure.subplots(1, 2, width_ratios=[2.6, 1])
    for curve in readme_curves(curves):
        row = rows[curve["method"]]
        _curve(over_rounds, curve["test"], *styles[row.method], label=_label(row))
    over_rounds.set_xlabel("rounds")
    over_rounds.set_ylabel("test accuracy, %")
    over_rounds.set_title("mean and range of the seeds", fontsize=10)
    over_rounds.set_ylim(0, 100)
    over_rounds.legend(loc="lower right", fontsize=9)
    _last_accuracies(at_end, [rows[method] for method in METHODS], [*map(styles.get, METHODS)])
    for axes in (over_rounds, at_end):
        axes.grid(alpha=0.3)
    settings = results["settings"]
    figure.suptitle(
        f"{results['title']}, {settings['hospitals']} hospitals with {settings['examples']} "
        f"examples each, {len(results['seeds'])} seeds"
    )
    figure.savefig(path, metadata={"Source": digest(results, curves)})


def readme_curves(curves: Curves) -> Curves:
    """Return the curves of the plot, in its order."""
    found = {curve["method"]: curve for curve in curves if not curve["variant"]}
    if missing := [method for method in METHODS if method not in found]:
        raise ExperimentError(
            f"the README's plot shows {EXPERIMENT} and needs the methods {', '.join(missing)} too"
        )
    return [found[method] for method in METHODS]


def digest(results: dict[str, Any], curves: Curves) -> str:
    """Return a SHA-256 of everything that is drawn."""
    rows = {row["method"]: row for row in results["rows"]}
    drawn = {
        "title": [results["title"], results["settings"], results["seeds"]],
        "rows": [rows[method] for method in METHODS],
        "curves": [curve["test"] for curve in readme_curves(curves)],
    }
    return hashlib.sha256(canonical_bytes(drawn)).hexdigest()


def _curve(axes: Axes, points: list[list[float]], colour: str, marker: str, *, label: str) -> None:
    """Draw a mean with its band; the last three columns are mean, minimum and maximum."""
    rounds = [point[0] for point in points]
    mean, low, high = ([point[column] for point in points] for column in (-3, -2, -1))
    axes.plot(rounds, mean, color=colour, lw=1.8, marker=marker, markersize=4, label=label)
    axes.fill_between(rounds, low, high, color=colour, alpha=0.15, lw=0)


def _last_accuracies(axes: Axes, rows: list[Row], styles: list[Any]) -> None:
    """Draw one point per seed; grey lines join the same seed's points."""
    values = [row.aggregate.values if row.aggregate else () for row in rows]
    for seed in zip(*values, strict=True):
        axes.plot(range(len(rows)), seed, color="0.75", lw=0.8, zorder=1)
    for place, (accuracies, (colour, marker)) in enumerate(zip(values, styles, strict=True)):
        axes.scatter([place] * len(accuracies), accuracies, color=colour, marker=marker, s=30)
    axes.set_xticks(range(len(rows)), [row.label.replace("(", "\n(") for row in rows], fontsize=9)
    axes.set_xlim(-0.4, len(rows) - 0.6)
    axes.set_title("at the end, each seed", fontsize=10)


def _label(row: Row) -> str:
    mean = f"{row.aggregate.mean:.1f} %" if row.aggregate else "diverged"
    return f"{row.label}: {mean}, {row.aggregations} aggregations"
