"""Settings to begin with, from what the studies of docs/when-it-helps.md found."""

from dataclasses import dataclass

from learning.settings import Scalar

# With fewer rounds FedAvg(1) was ahead (the study `rounds`).
_LEAST_ROUNDS, _LEAST_AGGREGATIONS = 60, 10
_TINY, _FEW_CLASSES, _LONG_RUN = 2, 2, 400


@dataclass(frozen=True)
class Case:
    """A study as its coordinator knows it; `classes` at each hospital, of all, 0: all mixed."""

    hospitals: int
    samples: int
    rounds: int = 200
    classes: int = 0


@dataclass(frozen=True)
class Advice:
    """Settings, and a reason for each; `chain` is false where hand-overs are not worth it."""

    chain: bool
    settings: dict[str, Scalar]
    reasons: dict[str, str]
    warnings: list[str]


def advise(case: Case) -> Advice:
    """Return what to begin with."""
    init = "the mean of independent first models has 1/√m of their norm, and may not recover"
    if case.rounds < _LEAST_ROUNDS:
        return Advice(
            chain=False,
            settings={
                "daisy-period": 0,
                "aggregation-period": 1,
                "init": "shared",
                "permutation": "uniform",
            },
            reasons={
                "daisy-period": "hand-overs have nothing to give here: see the remarks",
                "aggregation-period": "average every round",
                "init": init,
                "permutation": "the default; nothing is handed over",
            },
            warnings=_warnings(case, chain=False),
        )
    period, why = _period(case)
    covers = case.hospitals <= period
    settings: dict[str, Scalar] = {
        "daisy-period": 1,
        "aggregation-period": period,
        "init": "shared",
        "permutation": "coverage" if covers else "uniform",
    }
    reasons = {
        "daisy-period": "a hand-over after every round: longer stays teach a model one hospital",
        "aggregation-period": why,
        "init": init,
        "permutation": f"a chain of {period} rounds can see all {case.hospitals} hospitals, and "
        "coverage makes sure that it does"
        if covers
        else "others made no measurable difference",
    }
    return Advice(True, settings, reasons, _warnings(case, chain=True))


def _period(case: Case) -> tuple[int, str]:
    """Return the aggregation period, and why."""
    if 0 < case.classes <= _FEW_CLASSES:
        period, why = (
            3,
            "few classes at each: convolutions lost with b = 10 in an earlier study",
        )
    elif case.samples <= _TINY:
        period, why = 3, "tiny hospitals: with one example each FedAvg(1) was ahead of b = 10"
    elif case.rounds >= _LONG_RUN:
        period, why = 10, "a long run on mixed data: aggregations can be rare"
    else:
        period, why = 5, "mixed data: longer chains were as good where they were tried"
    longest = case.rounds // _LEAST_AGGREGATIONS
    if period > longest:
        return longest, f"{case.rounds} rounds should have {_LEAST_AGGREGATIONS} aggregations"
    return period, why


def _warnings(case: Case, *, chain: bool) -> list[str]:
    found = []
    if not chain:
        found.append(
            f"{case.rounds} rounds are too few for chains: average every round, or plan for "
            f"{_LEAST_ROUNDS} rounds and more"
        )
    if case.samples <= _TINY:
        found.append(
            "no BatchNorm with two examples a hospital: it broke every method in an earlier study"
        )
    if chain:
        found.append(
            "expect about the accuracy of averaging every round, with "
            "aggregation-period times fewer aggregations; if aggregations cost you nothing, "
            "averaging every round is as good"
        )
        found.append("try half of the largest learning rate that averaging every round bears")
    return found
