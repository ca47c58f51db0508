"""Settings to begin with, from what the studies of docs/when-it-helps.md found."""

from dataclasses import dataclass

from learning.settings import Scalar

# Fewer aggregations than this leave no time for chains to pay.
_LEAST_AGGREGATIONS = 10
_TINY, _LONG_RUN = 2, 400


@dataclass(frozen=True)
class Case:
    """A study as its coordinator knows it; `classes` at each hospital, of all, 0: all mixed."""

    hospitals: int
    samples: int
    rounds: int = 200
    classes: int = 0
    linear: bool = False


@dataclass(frozen=True)
class Advice:
    """Settings, and a reason for each; `chain` is false where hand-overs are not worth it."""

    chain: bool
    settings: dict[str, Scalar]
    reasons: dict[str, str]
    warnings: list[str]


def advise(case: Case) -> Advice:
    """Return what to begin with."""
    reasons: dict[str, str] = {}
    period = _period(case, reasons)
    chain = not case.linear and case.rounds >= _LEAST_AGGREGATIONS * 2
    settings: dict[str, Scalar] = {
        "daisy-period": 1 if chain else 0,
        "aggregation-period": period if chain else 1,
        "init": "shared",
        "permutation": "coverage" if case.hospitals <= period else "uniform",
    }
    reasons["daisy-period"] = (
        "a model learns most from a hand-over after every round"
        if chain
        else "hand-overs have nothing to give here: see the remarks"
    )
    reasons["init"] = (
        "the mean of independent first models has 1/√m of their norm, and may not recover"
    )
    reasons["permutation"] = (
        f"with {case.hospitals} hospitals and b = {period} a chain can see every hospital between "
        "two aggregations, and coverage makes sure that it does"
        if settings["permutation"] == "coverage"
        else "others made no measurable difference"
    )
    if 0 < case.classes <= 2 and chain:
        settings |= {"ramp": True, "tail": 0.1}
        reasons["ramp, tail"] = (
            "hospitals with few classes: aggregate more at the start and the end"
        )
    return Advice(chain, settings, reasons, list(_warnings(case, chain)))


def _period(case: Case, reasons: dict[str, str]) -> int:
    if case.classes == 1 or case.samples <= _TINY:
        period, why = 3, "with single-class or tiny hospitals long chains forget"
    elif case.classes == 2:
        period, why = 3, "with two classes at each hospital long chains forget"
    elif case.rounds >= _LONG_RUN:
        period, why = 10, "a long run on mixed data: aggregations can be rare"
    else:
        period, why = 5, "mixed data"
    longest = max(1, case.rounds // _LEAST_AGGREGATIONS)
    if period > longest:
        period, why = (
            longest,
            f"{case.rounds} rounds should have {_LEAST_AGGREGATIONS} aggregations",
        )
    reasons["aggregation-period"] = why
    return period


def _warnings(case: Case, chain: bool) -> list[str]:
    found = []
    if case.linear:
        found.append("linear models: chaining gained nothing over averaging; average instead")
    elif not chain:
        found.append(
            f"{case.rounds} rounds are too few for chains: average every round, or plan for "
            f"{_LEAST_AGGREGATIONS * 2} rounds and more"
        )
    if case.samples <= _TINY:
        found.append("no BatchNorm with two examples a hospital: it breaks every method")
    if chain:
        found.append(
            "expect about the accuracy of averaging every round, with "
            "aggregation-period times fewer aggregations; if aggregations cost you nothing, "
            "averaging every round is as good"
        )
        found.append("try a third of the learning rate that averaging would take")
    return found
