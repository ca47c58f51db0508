"""accuracy.png: the accuracy of a run over its rounds."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure

from operation.runs.curve import Point
from operation.runs.history import RunHistory
from server_app.pages.published import pooled_only


def plot_accuracy(run_dir: Path) -> Path:
    """Draw the aggregates' test accuracy and the hospitals' training accuracy.

    A mean over fewer than three hospitals is left out, as on every page that may be handed out.
    """
    figure = accuracy_figure(RunHistory.read(run_dir))
    path = run_dir / "accuracy.png"
    figure.savefig(path)
    return path


def accuracy_figure(history: RunHistory) -> Figure:
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(
        *_percent([pooled_only(point, beside_losses=False) for point in history.training.points]),
        color="tab:green",
        linewidth=1,
        label="training, mean over hospitals",
    )
    axes.plot(
        *_percent(history.test.points),
        color="tab:orange",
        marker="o",
        markersize=3,
        label="test, each aggregate",
    )
    axes.set_xlabel("rounds (local updates)")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    return figure


def _percent(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    known = [(x, 100 * accuracy) for x, _, accuracy, *_ in points if not math.isnan(accuracy)]
    return [x for x, _ in known], [accuracy for _, accuracy in known]
