"""Final accuracy over the variants of an experiment, which are numbers or names."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.results.origin import sizes, task
from lab.results.plots.plot_style import GREY, shared_legend, styled
from lab.results.row import Row, name_of


def over_variants(results: dict[str, Any], rows: list[Row], path: Path) -> Path:
    """Draw every method's mean with the range of the seeds."""
    named = [row for row in rows if row.x is None]
    height = 4.6 if not named else 2.1 + 0.2 * len(rows)
    figure = Figure(figsize=(7, height), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    if named:
        _by_name(axes, rows)
    else:
        _by_number(axes, rows)
        axes.set_xlabel(results["x_label"])
        axes.set_ylabel("test accuracy, %")
    figure.suptitle(
        f"{results['title']}\n{task(results)}; {sizes(results)}\n"
        "bars: from the lowest to the highest seed",
        fontsize=9,
    )
    axes.grid(alpha=0.3)
    shared_legend(figure, [axes])
    figure.savefig(path)
    return path


def _by_number(axes: Axes, rows: list[Row]) -> None:
    """Draw over a numeric axis; methods are shifted slightly so that none hides another."""
    ticks = sorted({row.x for row in rows if row.x is not None})
    logarithmic = ticks[0] > 0
    if logarithmic:
        axes.set_xscale("log")
        nearest = min((high / low for low, high in pairwise(ticks)), default=2.0)
    else:
        nearest = min((high - low for low, high in pairwise(ticks)), default=1.0)
    styles = list(styled(rows))
    for number, (method, (colour, marker)) in enumerate(styles):
        mine = sorted(_of(rows, method), key=lambda row: row.x or 0)
        if not mine:
            continue
        place = 0.3 * _shift(number, len(styles))
        xs = [row.x or 0 for row in mine]
        xs = [x * nearest**place if logarithmic else x + nearest * place for x in xs]
        means, errors = _means(mine)
        name = name_of(rows, method)
        axes.errorbar(
            xs, means, yerr=errors, color=colour, marker=marker, ms=5, lw=1.2, elinewidth=0.9,
            capsize=2, label=name,
        )  # fmt: skip
        papers = [(x, row.paper) for x, row in zip(xs, mine, strict=True) if row.paper is not None]
        if papers:
            axes.plot(
                *zip(*papers, strict=True), color=colour, ls="--", marker=".", lw=0.9,
                label=f"the paper, {name}",
            )  # fmt: skip
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _by_name(axes: Axes, rows: list[Row]) -> None:
    """Draw one row per variant, with its methods next to each other."""
    variants = list(dict.fromkeys(row.variant for row in rows))
    within = {
        variant: [row.method for row in rows if row.variant == variant] for variant in variants
    }

    def height(row: Row) -> float:
        here = within[row.variant]
        return variants.index(row.variant) + 0.8 * _shift(here.index(row.method), len(here))

    papers = []
    for method, (colour, marker) in styled(rows):
        mine = _of(rows, method)
        if not mine:
            continue
        means, errors = _means(mine)
        axes.errorbar(
            means,
            [height(row) for row in mine],
            xerr=errors, color=colour, marker=marker or "|", ms=5, ls="", capsize=2,
            label=name_of(rows, method),
        )  # fmt: skip
        papers += [(row.paper, height(row), colour) for row in mine if row.paper is not None]
    half = 0.4 / max(len(methods) for methods in within.values())
    for paper, middle, colour in papers:
        axes.vlines(paper, middle - half, middle + half, color=colour, ls=(0, (2, 1)), lw=1.8)
    if papers:
        axes.plot(
            [], [], color=GREY, ls=(0, (2, 1)), lw=1.8, label="the paper, in the method's colour"
        )
    for between in range(1, len(variants)):
        axes.axhline(between - 0.5, color=GREY, lw=0.5)
    axes.set_yticks(range(len(variants)), variants)
    axes.set_ylim(len(variants) - 0.5, -0.5)
    axes.set_xlabel("test accuracy, %")


def _shift(number: int, count: int) -> float:
    """Return the offset of one of several items, from -1/2 to 1/2."""
    return (number - (count - 1) / 2) / count


def _of(rows: list[Row], method: str) -> list[Row]:
    return [row for row in rows if row.method == method and row.headline is not None]


def _means(rows: list[Row]) -> tuple[list[float], list[list[float]]]:
    spreads = [row.headline for row in rows if row.headline is not None]
    low = [one.mean - min(one.values) for one in spreads]
    high = [max(one.values) - one.mean for one in spreads]
    return [one.mean for one in spreads], [low, high]
