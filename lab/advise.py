"""Settings to begin with, from what the studies of docs/when-it-helps.md found."""

from dataclasses import dataclass

from operation.config import Scalar

# Each of these is from a study of docs/when-it-helps.md, which a test compares.
_LEAST_ROUNDS, _LONG_RUN = 60, 400
_ONE_EXAMPLE, _TINY, _MANY = 1, 2, 16
_FEW_CLASSES, _FEW_HOSPITALS = 2, 20
_CONVOLUTIONS = (
    "few classes at each hospital: an MLP lost nothing that could be measured (study non-iid), but "
    "with two classes each a network with convolutions was 0.8 points behind averaging every round "
    "(study convolutions, three seeds): compare both"
)


@dataclass(frozen=True)
class Case:
    """A study as its coordinator knows it; `classes` at each hospital, of all, 0: all mixed."""

    hospitals: int
    examples: int
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
                "daisy-period": "averaging every round did better: see the remarks",
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
            f"{case.rounds} rounds are few for chains: with 30 FedDC had 3.0 points less than "
            f"averaging every round (study rounds: five seeds leave it undecided); plan for "
            f"{_LEAST_ROUNDS} and more, or average. If aggregations must be rare, hand over all "
            "the same: that was 3.2 points ahead of averaging every 10 rounds"
        )
    if case.examples <= _ONE_EXAMPLE:
        found.append(
            "with a single example at each hospital FedDC was 1.4 points behind averaging every "
            "round (study samples)"
        )
    return found


def _period(case: Case) -> tuple[int, str]:
    """Return the aggregation period, and why."""
    same = (
        "a value to begin with: on digits chains of 2 to 100 rounds differed by 0.3 points at most "
        "(study period), on CIFAR10 shorter ones were better in both of two seeds (cifar10-periods)"
    )
    return (10, f"a long run; {same}") if case.rounds >= _LONG_RUN else (5, same)


def _warnings(case: Case) -> list[str]:
    found = []
    if case.examples <= _TINY:
        found.append(
            "no BatchNorm with two examples a hospital: it broke every method in an earlier study, "
            "which was not repeated here"
        )
    if case.hospitals < _FEW_HOSPITALS:
        found.append(f"no study here has fewer than {_FEW_HOSPITALS} hospitals")
    return found


def _expectations(case: Case) -> list[str]:
    found = [
        "expect about the accuracy of averaging every round, with aggregation-period times fewer "
        "aggregations; if aggregations cost you nothing, averaging every round is as good",
        "try a half and a quarter of the largest learning rate that averaging every round bears",
    ]
    if case.examples >= _MANY:
        found.append(
            f"from {_MANY} examples a hospital on a gain over averaging as rarely was not shown "
            "(study samples: +1.1 points, undecided), and that sends far fewer models: try it too "
            "(daisy-period = 0)"
        )
    return [*found, _CONVOLUTIONS] if 0 < case.classes <= _FEW_CLASSES else found
