"""Cancelled noise end to end: real hospitals, secure averages, and a replay in plain NumPy.

A linear model with hinge loss, far from its margins, has the same gradient wherever it is. So the
replay needs neither torch nor the project's training: it moves vectors along the routes that the
coordinator chose, adds known noise, and subtracts it again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learning.local_data import load_partitions
from learning.privacy import NoiseSource
from protocol.messages import Request, TrainLeg
from protocol.randomness import derive_seed
from tests.strategies.misconduct import is_deaf
from tests.strategies.unruly_grid import Outcome, UnrulyGrid, run, tiny

Vector = NDArray[np.float64]
RATE, CLIP, MULTIPLIER, NOMINAL = 0.01, 1.0, 3.0, 8
SETTINGS: dict[str, Any] = {
    "hospitals": 4,
    "rounds": 6,
    "aggregation_period": 3,
    "sealed": True,
    "model": "linear",
    "model_options": '{"outputs": 1}',
    "loss": "hinge",
    "learning_rate": RATE,
    "batch_size": 0,
    "privacy_unit": "patient",
    "clip_norm": CLIP,
    "noise_multiplier": MULTIPLIER,
    "nominal_patients": NOMINAL,
    "average_noise_multiplier": 1e-6,  # as good as no fresh noise
}


def federate(absent: Mapping[int, set[int]] | None = None, **changes: Any) -> Outcome:
    """Run an experiment in which some hospitals do not get the request of a leg."""

    def rule(position: int, request: Request) -> Any:
        legs = absent or {}
        is_away = isinstance(request, TrainLeg) and position in legs.get(request.leg, set())
        return is_deaf if is_away else None

    return run(UnrulyGrid(tiny(**SETTINGS | changes), rule), averaging="secure")


class Replay:
    """The same experiment, without the project's training: one vector for each model."""

    def __init__(self, outcome: Outcome, *, multiplier: float = MULTIPLIER) -> None:
        settings = outcome.grid.settings
        a = settings.algorithm
        self.multiplier = multiplier
        self.names = [p.name for p in load_partitions(settings.local, a.hospitals, a.seed)]
        self.updates = [
            _update(partition.train.features, partition.train.labels)
            for partition in load_partitions(settings.local, a.hospitals, a.seed)
        ]
        seed = NoiseSource(derive_seed(a.seed, "noise"))
        self.sources = [seed.source("hospital", position) for position in range(a.hospitals)]
        first = _flat(outcome.first.parameters)
        self.waiting = dict.fromkeys(range(a.hospitals), first)
        self.carried = [np.zeros_like(first) for _ in self.names]
        self.aggregates: dict[int, Vector] = {}

    def noise(self, hospital: int, round_: int) -> Vector:
        drawn = self.sources[hospital].stream("round", round_).normal(len(self.carried[0]))
        return -RATE * self.multiplier * CLIP / NOMINAL * drawn.numpy()

    def leg(self, requests: Mapping[int, TrainLeg], absent: set[int]) -> None:
        present = {p: r for p, r in requests.items() if p not in absent}
        is_average = all(request.recipient is None for request in present.values())
        sent: dict[int, Vector] = {}
        for hospital, request in present.items():
            model = self.waiting[hospital]
            rounds = range(request.first_round, request.first_round + request.local_rounds)
            for round_ in rounds:
                model = model + self.updates[hospital]
                if not (is_average and round_ == rounds[-1]):
                    noise = self.noise(hospital, round_)
                    model, self.carried[hospital] = model + noise, self.carried[hospital] + noise
            sent[hospital] = model
        if not is_average:
            for hospital, request in present.items():
                self.waiting[self.names.index(str(request.recipient))] = sent[hospital]
            return
        total = sum((sent[h] - self.carried[h] for h in sent), np.zeros_like(self.carried[0]))
        aggregate = total / len(sent)
        self.waiting = dict.fromkeys(self.waiting, aggregate)
        for hospital in sent:
            self.carried[hospital] = np.zeros_like(aggregate)
        self.aggregates[next(iter(present.values())).leg] = aggregate


def _update(features: NDArray[np.float32], labels: NDArray[np.int64]) -> Vector:
    """Return what one round adds to the weights and the bias, as long as no margin is reached."""
    total = np.zeros(features.shape[1] + 1)
    for row, label in zip(features.astype(float), labels, strict=True):
        gradient = -(2.0 * label - 1) * np.append(row, 1.0)
        total += gradient * min(1.0, CLIP / np.linalg.norm(gradient))
    return -RATE * total / NOMINAL


def _flat(parameters: Mapping[str, NDArray[Any]]) -> Vector:
    weight, bias = (next(a for n, a in parameters.items() if part in n) for part in _PARTS)
    return np.concatenate([weight.ravel(), bias.ravel()])


_PARTS = ("weight", "bias")


def replayed(outcome: Outcome, absent: Mapping[int, set[int]] | None = None) -> Replay:
    replay = Replay(outcome)
    for leg in outcome.diary.reports:
        replay.leg(outcome.grid.requests(leg), (absent or {}).get(leg, set()))
    return replay


@pytest.mark.parametrize(
    "changes",
    [{}, {"rounds": 8, "daisy_period": 2, "aggregation_period": 4}, {"daisy_period": 0}],
    ids=["hand-overs", "two rounds a leg", "no hand-overs"],
)
def test_an_average_is_the_last_aggregate_plus_the_mean_update_without_noise(
    changes: dict[str, Any],
) -> None:
    outcome = federate(**changes)

    last = _flat(outcome.first.parameters)
    update = np.mean(Replay(outcome).updates, axis=0)
    begun = 0
    for number, aggregate in outcome.diary.aggregates.items():
        rounds = outcome.diary.reports[number].leg.last_round + 1 - begun
        expected = last + rounds * update
        np.testing.assert_allclose(_flat(aggregate.parameters), expected, rtol=0, atol=1e-5)
        last, begun = _flat(aggregate.parameters), begun + rounds


@pytest.mark.parametrize(
    ("absent", "changes"),
    [
        ({3: {3}}, {}),
        ({2: {1}}, {"rounds": 8, "daisy_period": 2, "aggregation_period": 4}),
    ],
    ids=["one round a leg", "two rounds a leg"],
)
def test_whoever_missed_an_average_subtracts_its_noise_at_the_next(
    absent: dict[int, set[int]], changes: dict[str, Any]
) -> None:
    outcome = federate(absent, **changes)

    replay = replayed(outcome, absent)
    assert len(replay.aggregates) == len(outcome.diary.aggregates) >= 2
    for number, expected in replay.aggregates.items():
        found = _flat(outcome.diary.aggregates[number].parameters)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    # What a lost chain leaves behind is noise: hand-overs had some.
    without = Replay(outcome, multiplier=0.0)
    for leg in outcome.diary.reports:
        without.leg(outcome.grid.requests(leg), absent.get(leg, set()))
    first = min(replay.aggregates)
    assert np.abs(replay.aggregates[first] - without.aggregates[first]).max() > 1e-3
