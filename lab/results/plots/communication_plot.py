"""The plots of a comparison: accuracy over rounds, aggregations, messages and variants."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lab.results.origin import sizes, task
from lab.results.plots.plot_style import (
    DASHES,
    GREEN,
    GREY,
    ORANGE,
    Curves,
    limits,
    shared_legend,
    slug,
    styled,
)
from lab.results.plots.variant_plot import over_variants
from lab.results.row import Row, rows_of
from lab.results.statistics import Spread

Styles = dict[str, tuple[str, str]]
# More curves than this hide each other.
_MOST = 5
# The methods of the plot, the most important first, by the beginning of their names.
_RANKED = (
    *("feddc", "fedavg-b", "fedavg-1", "radon-b", "radon-1"),
    *("feddc-", "daisy", "central", "sgd"),
)
# Distance in points above the measured values from which the paper's levels get their own strip.
_FAR = 8


def draw(results: dict[str, Any], curves: Curves, folder: Path) -> list[Path]:
    """Draw accuracy over rounds, against aggregations and messages, and over the variants."""
    rows = rows_of(results)
    drawn = []
    for variant in dict.fromkeys(row.variant for row in rows):
        here = [row for row in rows if row.variant == variant]
        mine = [curve for curve in curves if curve["variant"] == variant]
        if mine:
            end = f"-{slug(variant)}" if variant else ""
            title = results["title"] + (f", {variant}" if variant else "")
            title += f"\n{task(results, variant)}; {sizes(results)}"
            metric = results["judged"].replace("-", " ")
            drawn += [
                _over_rounds(title, metric, here, mine, folder / f"rounds{end}.png"),
                _against_cost(title, metric, here, mine, folder / f"communication{end}.png"),
            ]
    if len({row.variant for row in rows}) > 1:
        drawn.append(over_variants(results, rows, folder / "variants.png"))
    return drawn


def _over_rounds(title: str, metric: str, rows: list[Row], curves: Curves, path: Path) -> Path:
    """Draw one panel per method with training and test accuracy, as in the paper's figures."""
    columns = min(3, len(curves))
    lines = -(-len(curves) // columns)
    figure = Figure(figsize=(3.3 * columns, 2.5 * lines + 0.9), dpi=120, layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flatten()
    central = next((row.aggregate for row in rows if row.method == "central"), None)
    for panel, curve in zip(panels, curves, strict=False):
        row = next(row for row in rows if row.method == curve["method"])
        if band := curve.get("hospitals"):
            rounds, low, high = zip(*band, strict=True)
            label = "training, lowest to highest hospital"
            panel.fill_between(rounds, low, high, color=GREEN, alpha=0.1, lw=0, label=label)
        _band(panel, curve["training"], 0, GREEN, "training, mean over hospitals")
        _band(panel, curve["test"], 0, ORANGE, "test, each aggregate", marker="o")
        if row.judged_by == "clients" and row.clients:
            last = curve["test"][-1][0]
            panel.plot(
                [last], [row.clients.mean], "D", color="tab:brown", label="test, clients' mean"
            )
        if central and curve["method"] != "central":
            panel.axhline(central.mean, color="black", ls=":", lw=1, label="all data together")
        if row.paper is not None:
            panel.axhline(row.paper, color=GREY, ls="--", lw=1, label="the paper's level")
        panel.set_title(row.label, fontsize=10)
        panel.grid(alpha=0.3)
    for panel in panels[len(curves) :]:
        panel.set_visible(False)
    panels[0].set_ylim(*limits(rows, curves))
    figure.suptitle(f"{title}\nbands: from the lowest to the highest seed", fontsize=10)
    for panel in panels[len(curves) - columns : len(curves)]:
        panel.set_xlabel("rounds")
        panel.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        panel.tick_params(labelbottom=True)
    for panel in panels[::columns]:
        panel.set_ylabel(f"{metric}, %")
    shared_legend(figure, panels)
    figure.savefig(path)
    return path


def _against_cost(title: str, metric: str, rows: list[Row], curves: Curves, path: Path) -> Path:
    """Draw test accuracy against the number of aggregations, and against the models sent."""
    figure = Figure(figsize=(10, 5.8), dpi=120, layout="constrained")
    senders = {row.method for row in rows if row.messages}
    panels, above = _panels(
        figure, rows, [c for c in main_curves(curves) if c["method"] in senders]
    )
    styles = dict(styled(rows))
    for curve in main_curves(curves):
        row = next(row for row in rows if row.method == curve["method"])
        colour, marker = styles[row.method]
        if not row.messages:
            _level(panels, row, colour)
            continue
        for panel, column in zip(panels, (1, 2), strict=True):
            if row.judged_by == "clients" and row.clients:
                end = curve["test"][-1][column]
                label = f"{row.label} (clients' mean at the end)"
                _band(panel, [[end, *_extremes(row.clients)]], 0, colour, label, marker)
            else:
                band = row.method in DASHES  # more bands would hide each other
                _band(panel, curve["test"], column, colour, row.label, marker, band=band)
    _paper_levels(above, rows, styles)
    for panel, what in zip(panels, ("aggregations", "models sent by hospitals"), strict=True):
        panel.set_xscale("log")
        panel.set_xlabel(f"{what} (logarithmic)")
        panel.grid(alpha=0.3, which="both")
    panels[0].set_ylabel(f"test {metric}, %")
    figure.suptitle(f"{title}\nbands: FedDC's and FedAvg's lowest to highest seed", fontsize=10)
    shared_legend(figure, [*panels, *above])
    figure.savefig(path)
    return path


def main_curves(curves: Curves) -> Curves:
    """Return the five methods that matter most, in their order; the table has all of them."""
    names = [curve["method"] for curve in curves]
    ranked = sorted((name for name in names if name.startswith(_RANKED)), key=_rank)
    return [curve for curve in curves if curve["method"] in ranked[:_MOST]]


def _rank(method: str) -> int:
    exact = [place for place, name in enumerate(_RANKED) if name == method]
    return (exact or [place for place, name in enumerate(_RANKED) if method.startswith(name)])[-1]


def _panels(figure: Figure, rows: list[Row], curves: Curves) -> tuple[list[Axes], list[Axes]]:
    """Return two panels, and the axes for the paper's levels: the same, or a strip above them.

    Levels far above the measured values would compress these.
    """
    low, high = limits(rows, curves, test_only=True, paper=False)
    levels = [row.paper for row in rows if row.paper is not None and row.method in DASHES]
    if not levels or min(levels) < high + _FAR:
        panels = list(figure.subplots(1, 2, sharey=True))
        panels[0].set_ylim(*limits(rows, curves, test_only=True))
        return panels, panels
    above, panels = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=[1, 4])
    panels[0].set_ylim(low, high)
    above[0].set_ylim(min(levels) - 3, max(levels) + 3)
    above[0].set_ylabel("the paper's")
    for strip in above:
        strip.grid(alpha=0.3, which="both")
        strip.tick_params(bottom=False, which="both")
    return list(panels), list(above)


def _paper_levels(panels: Iterable[Axes], rows: list[Row], styles: Styles) -> None:
    """Draw the paper's level as a dashed line, for FedDC and both FedAvg variants."""
    for row in rows:
        if row.paper is not None and row.method in DASHES:
            label = f"the paper, {row.label}: {row.paper:g}"
            colour, dashes = styles[row.method][0], DASHES[row.method]
            for panel in panels:
                panel.axhline(row.paper, color=colour, ls=dashes, lw=1.1, label=label)


def _level(panels: Iterable[Axes], row: Row, colour: str) -> None:
    """Draw a dotted line for training on pooled data, which sends no models."""
    if row.aggregate is not None:
        for panel in panels:
            panel.axhline(row.aggregate.mean, color=colour, ls=":", lw=1.3, label=row.label)


def _extremes(value: Spread) -> tuple[float, float, float]:
    return value.mean, min(value.values), max(value.values)


def _band(
    panel: Axes,
    points: list[list[float]],
    x: int,
    colour: str,
    label: str,
    marker: str = "",
    *,
    band: bool = True,
) -> None:
    """Draw a mean and the range of the seeds; the last three columns are mean, minimum, maximum."""
    if not points:
        return
    xs = [point[x] for point in points]
    mean, low, high = ([point[column] for point in points] for column in (-3, -2, -1))
    panel.plot(xs, mean, color=colour, lw=1.2, marker=marker, markersize=3.5, label=label)
    if len(points) == 1:
        panel.vlines(xs, low, high, color=colour, lw=1)
    elif band:
        panel.fill_between(xs, low, high, color=colour, alpha=0.15, lw=0)
