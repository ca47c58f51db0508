"""Proposition 5 of the paper, as printed and corrected: how long chains must be."""

import math
from dataclasses import dataclass

from lab.coverage import (
    all_chains_bound,
    chain_probability,
    distinct_hospitals,
    legs_needed,
    simulate_all_chains,
)

_SHOWN = 1e-4  # smaller probabilities of the distribution are left out


class BoundError(ValueError):
    """A number is outside its range; the message names it."""


@dataclass(frozen=True)
class Question:
    """m hospitals with n examples each, and the (ε, δ)-guarantee to reach.

    `parameters` of the model and Radon `iterations` h are needed only to check the proposition's
    conditions. `visits` and `rounds` replace the numbers that follow from the others.
    """

    hospitals: int
    examples: int | None
    epsilon: float = 0.05
    delta: float = 0.01
    daisy_period: int = 1
    parameters: int | None = None
    iterations: int = 1
    visits: int | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("hospitals", self.hospitals, 2),
            ("examples", self.examples, 1),
            ("daisy-period", self.daisy_period, 1),
            ("parameters", self.parameters, 1),
            ("radon-iterations", self.iterations, 1),
            ("visits", self.visits, 1),
            ("rounds", self.rounds, self.daisy_period),
        ):
            if value is not None and value < least:
                raise BoundError(f"{name} must be at least {least}, got {value}")
        for name, fraction in (("epsilon", self.epsilon), ("delta", self.delta)):
            if not 0 < fraction < 1:
                raise BoundError(f"{name} must be more than 0 and less than 1, got {fraction}")
        if self.examples is None and self.visits is None:
            raise BoundError("examples is missing: give the examples per hospital, or visits")
        if self.visits is not None and self.visits > self.hospitals:
            raise BoundError(
                f"visits must be at most the {self.hospitals} hospitals, got {self.visits}"
            )


@dataclass(frozen=True)
class Condition:
    """A condition of Proposition 5 and whether the question meets it."""

    text: str
    met: bool


@dataclass(frozen=True)
class Bound:
    """What the paper prints, and what holds.

    `printed_bound` is Proposition 5 as printed, with n₀(ε, √δ); `printed_bound_at_delta` uses
    n₀(ε, δ), as the paper's own figures. Both rest on a Lemma that is wrong. The other numbers are
    exact, except for `all_chains_probability`, which is simulated. They are None where all
    hospitals together have too few examples. Probabilities are those after `rounds` rounds of
    visiting at least `visits` hospitals.
    """

    examples_needed: float
    visits: int
    printed_bound: float | None
    printed_bound_at_delta: float | None
    aggregation_period: int | None
    """Smallest b after which all chains have the visits with probability 1 − √δ (union bound)."""
    aggregation_period_of_one_chain: int | None
    """Smallest b after which one given chain has them with that probability."""
    coverage_legs: int | None
    """Legs that suffice for certain with `permutation = coverage`."""
    rounds: int | None
    distinct: dict[int, float]
    chain_probability: float | None
    all_chains_bound: float | None
    all_chains_probability: float | None
    simulated_runs: int
    conditions: tuple[Condition, ...]


def bound(question: Question, *, simulate: bool = True) -> Bound:
    """Answer a question."""
    m, d, root = question.hospitals, question.daisy_period, math.sqrt(question.delta)
    needed = examples_for(question.epsilon, root)
    visits = question.visits or _visits(question, root)
    conditions = _conditions(question)
    if visits > m:
        return Bound(
            needed, visits, None, None, None, None, None, None, {}, None, None, None, 0, conditions
        )
    printed = printed_rounds(visits, m, d, root)
    at_delta = question.visits or _visits(question, question.delta)
    rounds = question.rounds or math.ceil(printed)
    legs = rounds // d
    simulated = simulate_all_chains(m, visits, legs) if simulate else None
    return Bound(
        examples_needed=needed,
        visits=visits,
        printed_bound=printed,
        printed_bound_at_delta=printed_rounds(at_delta, m, d, root) if at_delta <= m else None,
        aggregation_period=d * legs_needed(m, visits, root / m),
        aggregation_period_of_one_chain=d * legs_needed(m, visits, root),
        coverage_legs=visits,
        rounds=rounds,
        distinct={
            count: float(probability)
            for count, probability in enumerate(distinct_hospitals(m, legs))
            if probability > _SHOWN
        },
        chain_probability=chain_probability(m, visits, legs),
        all_chains_bound=all_chains_bound(m, visits, legs),
        all_chains_probability=simulated.value if simulated else None,
        simulated_runs=simulated.runs if simulated else 0,
        conditions=conditions,
    )


def examples_for(epsilon: float, delta: float) -> float:
    """Return n₀(ε, δ) = 1/ε · log 1/δ, the assumption of the paper's numerical analysis."""
    return math.log(1 / delta) / epsilon


def printed_rounds(visits: int, hospitals: int, daisy_period: int, rho: float) -> float:
    """Return T = d · m/ρ^(1/m) · (H_m − H_(m−k)), the paper's Lemma. It is wrong.

    The Lemma says that after T rounds every chain has visited k hospitals with probability 1 − ρ.
    Its proof bounds the probability that all chains miss, not that some chain does.
    """
    # H_m − H_(m−k), smallest terms first to limit rounding errors.
    difference = sum(1 / i for i in range(hospitals, hospitals - visits, -1))
    return float(daisy_period * hospitals / rho ** (1 / hospitals) * difference)


def _visits(question: Question, delta: float) -> int:
    examples = question.examples or 1
    return math.ceil(examples_for(question.epsilon, delta) / examples)


def _conditions(question: Question) -> tuple[Condition, ...]:
    """Check δ < 1/r and m ≥ r^h, where r is the Radon number of the model."""
    if question.parameters is None:
        return ()
    r, h, m = question.parameters + 2, question.iterations, question.hospitals
    power = r**h
    return (
        Condition(
            f"δ < 1/r: {question.delta:g} against 1/{r} = {1 / r:.3g}", question.delta * r < 1
        ),
        Condition(f"m ≥ r^h: {m} against {r}^{h} = {power}", m >= power),
    )
