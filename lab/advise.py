"""Settings to begin with, from what the studies of docs/when-it-helps.md found."""

from dataclasses import dataclass

from learning.settings import Scalar

# Each of these is from a study of docs/when-it-helps.md, which a test compares.
_LEAST_ROUNDS, _LEAST_AGGREGATIONS = 60, 10
_ONE_EXAMPLE, _TINY, _FEW_CLASSES, _LONG_RUN = 1, 2, 2, 400
# Not one of those studies, until `convolutions` has been run.
_CONVOLUTIONS = (
    "few classes at each hospital: an MLP lost nothing that could be measured (study non-iid), but "
    "convolutions did in an earlier study, 2 to 4 points to averaging every round: compare both"
)


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
    if because := _against_chains(case):
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
            warnings=[*because, *_warnings(case)],
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
    return Advice(True, settings, reasons, [*_warnings(case), *_expectations(case)])


def _against_chains(case: Case) -> list[str]:
    """Return why one should rather average every round; nothing, if one need not."""
    found = []
    if case.rounds < _LEAST_ROUNDS:
        found.append(
            f"{case.rounds} rounds are too few for chains: with 30 FedDC had 3.0 points less than "
            f"averaging every round (study rounds: five seeds leave it undecided); plan for "
            f"{_LEAST_ROUNDS} and more, or average"
        )
    if case.samples <= _ONE_EXAMPLE:
        found.append(
            "with a single example at each hospital FedDC was 1.4 points behind averaging every "
            "round (study samples)"
        )
    return found


def _period(case: Case) -> tuple[int, str]:
    """Return the aggregation period, and why."""
    same = "chains of 2 to 100 rounds differed by 0.3 points at most (study period)"
    if case.rounds >= _LONG_RUN:
        period, why = 10, f"a long run: {same}, so aggregations can be rare"
    else:
        period, why = 5, f"{same}; longer ones need fewer aggregations"
    longest = case.rounds // _LEAST_AGGREGATIONS
    if period > longest:
        return longest, f"{case.rounds} rounds should have {_LEAST_AGGREGATIONS} aggregations"
    return period, why


def _warnings(case: Case) -> list[str]:
    if case.samples > _TINY:
        return []
    return ["no BatchNorm with two examples a hospital: it broke every method in an earlier study"]


def _expectations(case: Case) -> list[str]:
    found = [
        "expect about the accuracy of averaging every round, with aggregation-period times fewer "
        "aggregations; if aggregations cost you nothing, averaging every round is as good",
        "try half of the largest learning rate that averaging every round bears",
    ]
    return [*found, _CONVOLUTIONS] if 0 < case.classes <= _FEW_CLASSES else found
