"""Final accuracy over what an experiment's variants change."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lab.results.plot_style import has_paper, name_of, styled
from lab.results.result import Row


def over_variants(results: dict[str, Any], rows: list[Row], path: Path) -> Path:
    """Final accuracy over what the variants change."""
    figure = Figure(figsize=(7, 4.6), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for method, (colour, marker) in styled(rows):
        points = [
            (row.x, row.headline, row.paper)
            for row in sorted(rows, key=lambda row: row.x or 0)
            if row.method == method and row.headline and row.x is not None
        ]
        if not points:
            continue
        xs = [x for x, _, _ in points]
        means = [value.mean for _, value, _ in points]
        low = [value.mean - min(value.values) for _, value, _ in points]
        high = [max(value.values) - value.mean for _, value, _ in points]
        axes.errorbar(
            xs, means, yerr=[low, high], color=colour, marker=marker, ms=5, lw=1.3, capsize=2,
            label=name_of(rows, method),
        )  # fmt: skip
        papers = [(x, paper) for x, _, paper in points if paper is not None]
        if papers:
            axes.plot(
                *zip(*papers, strict=True), color=colour, ls="--", marker=".", lw=0.9, alpha=0.7
            )
    if min(row.x for row in rows if row.x is not None) > 0:
        axes.set_xscale("log")
        ticks = sorted({row.x for row in rows if row.x is not None})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set_xlabel(results["x_label"])
    axes.set_ylabel("test accuracy, %")
    axes.set_title(
        f"{results['title']}; bars: the seeds' extremes"
        + ("; dashed: the paper" if has_paper(rows) else ""),
        fontsize=10,
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path)
    return path
