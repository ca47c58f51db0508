"""Settings to start with, from the ablations in docs/when-it-helps.md."""

from dataclasses import dataclass

from operation.config import Scalar

# Each of these comes from an ablation in docs/when-it-helps.md; a test compares them.
_LEAST_ROUNDS, _LONG_RUN = 60, 400
_ONE_EXAMPLE, _TINY, _MANY = 1, 2, 16
_FEW_CLASSES, _FEW_HOSPITALS = 2, 20
_PRIVATE_CHAIN = 3  # rounds; the longest that the experiment privacy has
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
    private: bool = False
    """Whether patients are protected by noise."""


@dataclass(frozen=True)
class Advice:
    """Settings with a reason for each; `chain` is false where hand-overs are not recommended."""

    chain: bool
    settings: dict[str, Scalar]
    reasons: dict[str, str]
    warnings: list[str]


def advise(case: Case) -> Advice:
    """Return settings to start with."""
    if case.private:
        return _private(case)
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


def _private(case: Case) -> Advice:
    """Average as often as possible: hand-overs are seen one by one and need the full noise."""
    settings: dict[str, Scalar] = {
        "daisy-period": 0,
        "aggregation-period": 1,
        "privacy-unit": "patient",
        "target-epsilon": 8.0,
        "average-noise-multiplier": 1.0,
        "nominal-patients": case.examples,
        "batch-size": 0,
        "optimizer": "sgd",
        "init": "shared",
    }
    reasons = {
        "daisy-period": "hand-overs are seen one by one and need the full noise",
        "aggregation-period": "average every round: in a secure average members share the noise",
        "privacy-unit": "with noise for whole hospitals far less accuracy is left",
        "target-epsilon": "what the members agree on; less costs accuracy",
        "average-noise-multiplier": "not 0: averages get the noise that target-epsilon needs",
        "nominal-patients": "about the patients of a hospital; not a count, which would be data",
        "batch-size": "all patients: at a fixed number of rounds smaller batches gain nothing",
        "optimizer": "with averages that replace the noise of their rounds, plain SGD is needed",
        "init": "the mean of independent first models may not recover",
    }
    return Advice(
        chain=False,
        settings=settings,
        reasons=reasons,
        warnings=[
            "at ε = 8 with 50 hospitals and 28 patients each (experiment privacy, three seeds) "
            "averaging every round reached 93.5 %, FedDC(1, 3) with cancelled noise 91.1 %, with "
            "local noise 85.5 %; without noise 97.6 % and 97.3 %",
            f"if you chain, keep aggregation-period at {_PRIVATE_CHAIN} or less: with "
            "average-noise-multiplier the averages subtract the noise of hand-overs",
            "choose learning-rate and clip-norm together: noise grows with their product",
            "fewer rounds need less noise for the same ε",
            *_warnings(case),
        ],
    )


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
