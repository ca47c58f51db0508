"""Final accuracy over what an experiment's variants change: a number, or something with names."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.results.plot_style import has_paper, shared_legend, styled
from lab.results.row import Row, name_of


def over_variants(results: dict[str, Any], rows: list[Row], path: Path) -> Path:
    """Draw every method's mean with the seeds' extremes."""
    named = [row for row in rows if row.x is None]
    height = 4.6 if not named else 1.8 + 0.18 * len(rows)
    figure = Figure(figsize=(7, height), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    if named:
        _by_name(axes, rows)
    else:
        _by_number(axes, rows)
        axes.set_xlabel(results["x_label"])
        axes.set_ylabel("test accuracy, %")
    axes.set_title(
        f"{results['title']}; bars: the seeds' extremes"
        + (f"; {'crosses' if named else 'dashed'}: the paper" if has_paper(rows) else ""),
        fontsize=10,
    )
    axes.grid(alpha=0.3)
    shared_legend(figure, [axes])
    figure.savefig(path)
    return path


def _by_number(axes: Axes, rows: list[Row]) -> None:
    for method, (colour, marker) in styled(rows):
        mine = sorted(_of(rows, method), key=lambda row: row.x or 0)
        if not mine:
            continue
        xs = [row.x or 0 for row in mine]
        means, errors = _means(mine)
        axes.errorbar(
            xs, means, yerr=errors, color=colour, marker=marker, ms=5, lw=1.3, capsize=2,
            label=name_of(rows, method),
        )  # fmt: skip
        papers = [(row.x, row.paper) for row in mine if row.paper is not None]
        if papers:
            axes.plot(*zip(*papers, strict=True), color=colour, ls="--", marker=".", lw=0.9)
    ticks = sorted({row.x for row in rows if row.x is not None})
    if ticks[0] > 0:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()


def _by_name(axes: Axes, rows: list[Row]) -> None:
    """One line for each variant, the methods beside each other on it."""
    variants = list(dict.fromkeys(row.variant for row in rows))
    styles = list(styled(rows))
    for number, (method, (colour, marker)) in enumerate(styles):
        mine = _of(rows, method)
        if not mine:
            continue
        shift = (number - (len(styles) - 1) / 2) * 0.8 / len(styles)
        means, errors = _means(mine)
        axes.errorbar(
            means,
            [variants.index(row.variant) + shift for row in mine],
            xerr=errors, color=colour, marker=marker or "|", ms=5, ls="", capsize=2,
            label=name_of(rows, method),
        )  # fmt: skip
        papers = [row for row in mine if row.paper is not None]
        axes.plot(
            [row.paper or 0 for row in papers],
            [variants.index(row.variant) + shift for row in papers],
            marker="x", color=colour, ms=6, ls="",
        )  # fmt: skip
    axes.set_yticks(range(len(variants)), variants)
    axes.set_ylim(len(variants) - 0.5, -0.5)
    axes.set_xlabel("test accuracy, %")


def _of(rows: list[Row], method: str) -> list[Row]:
    return [row for row in rows if row.method == method and row.headline is not None]


def _means(rows: list[Row]) -> tuple[list[float], list[list[float]]]:
    spreads = [row.headline for row in rows if row.headline is not None]
    low = [one.mean - min(one.values) for one in spreads]
    high = [max(one.values) - one.mean for one in spreads]
    return [one.mean for one in spreads], [low, high]
