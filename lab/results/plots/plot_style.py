"""Common style of all plots: colours and markers of methods, limits, legend, file names."""

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from lab.results.row import Row

Curves = list[dict[str, Any]]
# The paper's levels are close to each other: they differ in colour and in dashes.
DASHES = {"feddc": (0, (6, 3)), "fedavg-1": (0, (2, 2)), "fedavg-b": (0, (6, 2, 1, 2))}
GREEN, ORANGE, GREY = "tab:green", "tab:orange", "0.35"
_STYLES: dict[str, tuple[str, str]] = {
    "feddc": ("tab:orange", "o"),
    "daisy-chaining": ("tab:brown", "v"),
    "fedavg-1": ("tab:blue", "s"),
    "fedavg-b": ("tab:cyan", "D"),
    "fedprox": ("tab:green", "^"),
    "fedadagrad": ("tab:pink", "P"),
    "fedyogi": ("tab:purple", "X"),
    "fedadam": ("tab:red", "*"),
}
_SPARE = [
    ("tab:olive", "<"),
    ("navy", ">"),
    ("teal", "p"),
    ("slateblue", "h"),
    ("firebrick", "d"),
    ("darkgreen", "8"),
    ("0.4", "o"),
]


def styled(rows: list[Row]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each method with its colour and marker; standard methods look alike in all plots."""
    spare = iter(_SPARE * 3)
    for method in dict.fromkeys(row.method for row in rows):
        if method == "central":
            yield method, ("black", "")
        else:
            yield method, _STYLES.get(method) or next(spare)


def limits(
    rows: list[Row], curves: Curves, *, test_only: bool = False, paper: bool = True
) -> tuple[float, float]:
    """Return an accuracy range that contains every curve with its band."""
    kinds = ("test",) if test_only else ("test", "training")
    values = [
        value for curve in curves for kind in kinds for point in curve[kind] for value in point[-3:]
    ]
    values += [row.paper for row in rows if paper and row.paper is not None]
    values += [row.aggregate.mean for row in rows if row.aggregate]
    values += [row.headline.mean for row in rows if row.headline]
    return max(0.0, 5 * (min(values) // 5) - 2), min(101.0, max(values) + 2)


def shared_legend(figure: Figure, panels: Any) -> None:
    """Put one legend for all panels below them."""
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=4, fontsize=8
    )


def slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split())
