"""Settings to start with, from the ablations in docs/when-it-helps.md."""

from dataclasses import dataclass

from operation.config import Scalar

# Each of these comes from an ablation in docs/when-it-helps.md; a test compares them.
_LEAST_ROUNDS, _LONG_RUN = 60, 400
_ONE_EXAMPLE, _TINY, _MANY = 1, 2, 16
_FEW_CLASSES, _FEW_HOSPITALS = 2, 20
_CONVOLUTIONS = (
    "few classes at each hospital: an MLP lost nothing measurable (ablation non-iid), but with two "
    "classes each a convolutional network was 0.8 points behind averaging every round (ablation "
    "convolutions, three seeds): compare both"
)


@dataclass(frozen=True)
class Case:
    """A study as its coordinator knows it; `classes` is the number at each hospital, 0 for all."""

    hospitals: int
    examples: int
    rounds: int = 200
    classes: int = 0


@dataclass(frozen=True)
class Advice:
    """Settings with a reason for each; `chain` is false where hand-overs are not recommended."""

    chain: bool
    settings: dict[str, Scalar]
    reasons: dict[str, str]
    warnings: list[str]


def advise(case: Case) -> Advice:
    """Return settings to start with."""
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
                "daisy-period": "averaging every round did better: see below",
                "aggregation-period": "average every round",
                "init": init,
                "permutation": "the default; there are no hand-overs",
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
        "daisy-period": "a hand-over after every round: longer stays fit a model to one hospital",
        "aggregation-period": why,
        "init": init,
        "permutation": f"a chain of {period} rounds can visit all {case.hospitals} hospitals, and "
        "coverage ensures it does"
        if covers
        else "others made no measurable difference",
    }
    return Advice(True, settings, reasons, [*_warnings(case), *_expectations(case)])


def _against_chains(case: Case) -> list[str]:
    """Return the reasons to average every round instead; empty if there are none."""
    found = []
    if case.rounds < _LEAST_ROUNDS:
        found.append(
            f"{case.rounds} rounds are few for chains: with 30 FedDC had 3.0 points less than "
            f"averaging every round (ablation rounds: undecided with five seeds); use "
            f"{_LEAST_ROUNDS} or more, or average. If aggregations must be rare, keep the "
            "hand-overs: that was 3.2 points ahead of averaging every 10 rounds"
        )
    if case.examples <= _ONE_EXAMPLE:
        found.append(
            "with a single example at each hospital FedDC was 1.4 points behind averaging every "
            "round (ablation examples)"
        )
    return found


def _period(case: Case) -> tuple[int, str]:
    """Return the aggregation period and the reason for it."""
    same = (
        "a starting value: on digits chains of 2 to 100 rounds differed by 0.3 points at most "
        "(ablation period), on CIFAR10 shorter ones were better in both of two seeds "
        "(cifar10-periods)"
    )
    return (10, f"a long run; {same}") if case.rounds >= _LONG_RUN else (5, same)


def _warnings(case: Case) -> list[str]:
    found = []
    if case.examples <= _TINY:
        found.append(
            "avoid BatchNorm with two examples per hospital: it broke every method in an early "
            "ablation, which was not repeated here"
        )
    if case.hospitals < _FEW_HOSPITALS:
        found.append(f"no ablation here has fewer than {_FEW_HOSPITALS} hospitals")
    return found


def _expectations(case: Case) -> list[str]:
    found = [
        "expect about the accuracy of averaging every round, with aggregation-period times fewer "
        "aggregations; if aggregations are free for you, averaging every round is as good",
        "try a half and a quarter of the largest stable learning rate of averaging every round",
    ]
    if case.examples >= _MANY:
        found.append(
            f"from {_MANY} examples per hospital on, no gain over averaging at the same period was "
            "shown (ablation examples: +1.1 points, undecided); that sends far fewer models: try "
            "it too (daisy-period = 0)"
        )
    return [*found, _CONVOLUTIONS] if 0 < case.classes <= _FEW_CLASSES else found
