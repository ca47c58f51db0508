"""Proposition 5: how long chains must be before an aggregation improves the models."""

import math
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure


class BoundError(ValueError):
    """A number is outside its range; the message names it."""


@dataclass(frozen=True)
class Question:
    """m hospitals with n examples each, and the (ε, δ)-guarantee to reach."""

    hospitals: int
    examples: int
    epsilon: float
    delta: float
    daisy_period: int = 1

    def __post_init__(self) -> None:
        for name, value, least in (
            ("hospitals", self.hospitals, 2),
            ("examples", self.examples, 1),
            ("daisy-period", self.daisy_period, 1),
        ):
            if value < least:
                raise BoundError(f"{name} must be at least {least}, got {value}")
        for name, fraction in (("epsilon", self.epsilon), ("delta", self.delta)):
            if not 0 < fraction < 1:
                raise BoundError(f"{name} must be more than 0 and less than 1, got {fraction}")


@dataclass(frozen=True)
class Bound:
    """The bound of Proposition 5 and of its Lemma.

    `aggregation_period_bound` is the formula as printed, with n₀(ε, √δ);
    `aggregation_period_bound_at_delta` uses n₀(ε, δ), as in the paper's own figures. Both are None
    where all hospitals together have too few examples. `rounds_to_visit` maps a number of hospitals
    to the rounds after which every chain has visited that many, with probability 1 − √δ.
    """

    aggregation_period: int | None
    aggregation_period_bound: float | None
    aggregation_period_bound_at_delta: float | None
    examples_needed: float
    hospitals_needed: int
    rounds_to_visit: dict[int, float]


def bound(question: Question) -> Bound:
    """Compute the bounds for a question."""
    root = math.sqrt(question.delta)
    needed = examples_for(question.epsilon, root)
    hops = math.ceil(needed / question.examples)
    period = period_bound(question, needed)
    m = question.hospitals
    visits = sorted({min(m, max(1, round(part * m))) for part in (0.1, 0.25, 0.5, 0.9, 1)})
    return Bound(
        aggregation_period=None if period is None else math.ceil(period),
        aggregation_period_bound=period,
        aggregation_period_bound_at_delta=period_bound(
            question, examples_for(question.epsilon, question.delta)
        ),
        examples_needed=needed,
        hospitals_needed=hops,
        rounds_to_visit={
            count: rounds_to_visit(count, m, question.daisy_period, root) for count in visits
        },
    )


def examples_for(epsilon: float, delta: float) -> float:
    """Return n₀(ε, δ) = 1/ε · log 1/δ, the assumption of the paper's numerical analysis."""
    return math.log(1 / delta) / epsilon


def period_bound(question: Question, examples_needed: float) -> float | None:
    """Return b ≥ d · m/δ^(1/2m) · (H_m − H_(m−k)) with k = ⌈n₀/n⌉ (Proposition 5)."""
    hops = math.ceil(examples_needed / question.examples)
    if hops > question.hospitals:
        return None
    m, d = question.hospitals, question.daisy_period
    return rounds_to_visit(hops, m, d, math.sqrt(question.delta))


def rounds_to_visit(count: int, hospitals: int, daisy_period: int, rho: float) -> float:
    """Return T ≥ d · m/ρ^(1/m) · (H_m − H_(m−k)) (Lemma).

    After T rounds every chain has visited k hospitals with probability 1 − ρ. The sum is
    H_m − H_(m−k), smallest terms first to limit rounding errors.
    """
    difference = sum(1 / i for i in range(hospitals, hospitals - count, -1))
    return float(daisy_period * hospitals / rho ** (1 / hospitals) * difference)


def draw(question: Question, folder: Path) -> list[Path]:
    """Draw the two figures of the paper's numerical analysis for the question's numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_over_delta(question, folder), _over_examples(question, folder)]


def _over_delta(question: Question, folder: Path) -> Path:
    deltas = [10 ** (-exponent / 10) for exponent in range(5, 61)]
    sizes = sorted({question.examples, 2, 8, 32, 64, 128})
    curves = {
        f"n = {examples}": [
            (delta, _with(question, examples=examples, delta=delta)) for delta in deltas
        ]
        for examples in sizes
    }
    title = f"m = {question.hospitals}, ε = {question.epsilon:g}, d = {question.daisy_period}"
    return _curves(curves, "error probability δ", title, folder / "period-over-delta.png")


def _over_examples(question: Question, folder: Path) -> Path:
    sizes = [2**exponent for exponent in range(11)]
    numbers = sorted({question.hospitals, 10, 50, 150, 500})
    curves = {
        f"m = {hospitals}": [
            (examples, _with(question, examples=examples, hospitals=hospitals))
            for examples in sizes
        ]
        for hospitals in numbers
    }
    title = f"ε = {question.epsilon:g}, δ = {question.delta:g}, d = {question.daisy_period}"
    return _curves(curves, "examples of a hospital, n", title, folder / "period-over-examples.png")


def _with(
    question: Question,
    *,
    examples: int,
    hospitals: int | None = None,
    delta: float | None = None,
) -> float | None:
    changed = Question(
        hospitals or question.hospitals,
        examples,
        question.epsilon,
        delta or question.delta,
        question.daisy_period,
    )
    return bound(changed).aggregation_period_bound


def _curves(
    curves: dict[str, list[tuple[float, float | None]]], x: str, title: str, path: Path
) -> Path:
    figure = Figure(figsize=(6.5, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for label, points in curves.items():
        known = [(place, bound) for place, bound in points if bound is not None]
        if known:
            axes.plot(*zip(*known, strict=True), label=label, marker=".", markersize=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel("smallest aggregation period b, rounds")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    figure.savefig(path)
    return path
