"""A comparison small enough for a second, whose parts tests change."""

from typing import Any

import pytest

from lab.experiments import Experiment
from lab.sweep import Request, SweepPlan
from lab.sweep.record import Record
from lab.sweep.trial import Trial

TINY: dict[str, Any] = {
    "name": "tiny",
    "title": "Tiny",
    "source": "no paper",
    "settings": {
        "dataset": "breast-cancer",
        "hospitals": 4,
        "examples": 6,
        "held-out": 4,
        "rounds": 6,
        "daisy-period": 1,
        "aggregation-period": 3,
        "model-options": '{"hidden": [4]}',
    },
    "methods": ["feddc", "fedavg-1", "fedavg-b", "central"],
    "paper": {"feddc": [90.5, 0.5], "fedavg-1": 88},
    "laptop": {
        "seeds": 2,
        "learning-rates": [0.1, 0.5],
        "central": {"steps": 8, "batch-size": 6},
        "backend": "batched",
        "evaluations": 3,
    },
}


def tiny(**changes: Any) -> Experiment:
    """Return the experiment; changes of `laptop` and `settings` go on top of what is there."""
    values = TINY | {key: value for key, value in changes.items() if not isinstance(value, dict)}
    for key, value in changes.items():
        if isinstance(value, dict):
            values = values | {key: TINY.get(key, {}) | value}
    return Experiment.parse(values, source="test")


def plan(**changes: Any) -> SweepPlan:
    return SweepPlan(Request(tiny(**changes), "laptop"))


class Quiet:
    """Watches a sweep and writes down what it is told."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.expected: list[tuple[int, int]] = []

    def planned(self, plan: SweepPlan, trials: int, client_rounds: int) -> None:
        self.expected.append((trials, client_rounds))

    def progress(self, trial: Trial, client_rounds: int) -> None:
        pass

    def done(self, trial: Trial, record: Record) -> None:
        self.trained.append(trial.key)


@pytest.fixture
def quiet() -> Quiet:
    return Quiet()
