"""Draw records beside what the attacker computed from a hand-over."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .reconstruction import Matrix, Reconstruction

_ROWS = ("records", "computed from the\nhand-over", "the same, with\nnoise (ε = {:.2g})")


def draw(
    path: Path,
    without: Mapping[int, Reconstruction],
    with_noise: Mapping[int, Reconstruction],
    side: int,
    epsilon: float,
) -> None:
    """Draw one block for each batch size: the records, and two rows of guesses."""
    columns = sum(without) + len(without) - 1
    figure = Figure(figsize=(0.62 * columns + 1.9, 2.6), layout="constrained")
    grid = figure.add_gridspec(3, columns, wspace=0.05, hspace=0.05)
    first = 0
    for batch, clear in without.items():
        for row, images in enumerate((clear.records, clear.guesses, with_noise[batch].guesses)):
            for place in range(batch):
                axes = figure.add_subplot(grid[row, first + place])
                _show(axes, images[place], side)
                if first + place == 0:
                    axes.set_ylabel(
                        _ROWS[row].format(epsilon),
                        rotation=0,
                        ha="right",
                        va="center",
                        fontsize=8,
                    )
                if row == 0 and place == 0:
                    axes.set_title(f"batch of {batch}", fontsize=9, loc="left")
        first += batch + 1
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _show(axes: Axes, image: Matrix, side: int) -> None:
    low, high = np.quantile(image, [0.01, 0.99])
    axes.imshow(image.reshape(side, side), cmap="gray_r", vmin=low, vmax=max(high, low + 1e-9))
    axes.set_xticks([])
    axes.set_yticks([])
