"""The two figures of the paper's numerical analysis of Proposition 5, printed and corrected."""

from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.bound import Question, bound

# The paper's numbers: Figure 8 has m = 150, ε = 0.01 on the left, ε = δ = 0.01 on the right.
PAPER = Question(hospitals=150, examples=64, epsilon=0.01, delta=0.01)
_DELTAS = [10 ** (-exponent / 5) for exponent in range(2, 31)]
_SIZES = (2, 8, 32, 64, 128)
_HOSPITALS = (10, 50, 150, 500)

Points = list[tuple[float, Question]]


def draw_bounds(question: Question, folder: Path) -> list[Path]:
    """Draw the period over δ and over the examples of a hospital; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    own = question.examples or 1
    over_delta = {
        f"n = {examples}": [
            (delta, replace(question, examples=examples, delta=delta)) for delta in _DELTAS
        ]
        for examples in sorted({own, *_SIZES})
    }
    over_examples = {
        f"m = {hospitals}": [
            (2.0**exponent, replace(question, examples=2**exponent, hospitals=hospitals))
            for exponent in range(11)
        ]
        for hospitals in sorted({question.hospitals, *_HOSPITALS})
    }
    rest = f"ε = {question.epsilon:g}, d = {question.daisy_period}"
    return [
        _figure(
            over_delta,
            "error probability δ",
            f"m = {question.hospitals}, {rest}",
            folder / "period-over-delta.png",
        ),
        _figure(
            over_examples,
            "examples of a hospital, n",
            f"δ = {question.delta:g}, {rest}",
            folder / "period-over-examples.png",
        ),
    ]


def _figure(curves: dict[str, Points], x: str, title: str, path: Path) -> Path:
    figure = Figure(figsize=(6.5, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for number, (label, points) in enumerate(curves.items()):
        _curve(axes, points, label, f"C{number}")
    axes.plot([], [], color="gray", label="all chains, with probability 1 − √δ")
    axes.plot([], [], color="gray", linestyle="--", label="as printed (wrong)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel("smallest aggregation period b, rounds")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    figure.savefig(path)
    return path


def _curve(axes: Axes, points: Points, label: str, color: str) -> None:
    answers = [(place, bound(question, simulate=False)) for place, question in points]
    known = [
        (place, answer.aggregation_period, answer.printed_bound)
        for place, answer in answers
        if answer.aggregation_period is not None
    ]
    if known:
        places, corrected, printed = zip(*known, strict=True)
        axes.plot(places, corrected, label=label, color=color, marker=".", markersize=3)
        axes.plot(places, printed, color=color, linestyle="--", linewidth=1, alpha=0.7)
