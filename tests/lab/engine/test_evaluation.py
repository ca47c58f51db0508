"""Metrics on held-out data and on parts of the test set, against a slow computation of them."""

import numpy as np
import pytest

from lab.engine import run
from lab.engine.evaluation import pooled, sampled
from learning.local_data import load_dataset, load_partitions
from learning.trainer import Network, TaskSpec
from server_app.config.run_config import Settings
from tests.conftest import TINY

SETTINGS = Settings.from_run_config(TINY | {"rounds": 8}, source="test")


def test_the_last_aggregate_is_judged_on_what_the_hospitals_held_out() -> None:
    outcome = run(SETTINGS, backend="loop", evaluate_held_out=True)
    seed = SETTINGS.algorithm.seed
    partitions = load_partitions(SETTINGS.local, SETTINGS.algorithm.hospitals, seed)
    dataset = load_dataset(SETTINGS.local, seed)
    network = Network(SETTINGS.training, TaskSpec(dataset.shape, 2), seed=0)
    network.load(outcome.model.parameters, outcome.model.buffers)
    held_out = pooled([partition.held_out for partition in partitions])
    assert len(held_out) == 6 * 2
    assert outcome.history.held_out == network.evaluate(*network.tensors(held_out))
    assert len(outcome.history.clients_held_out) == len(outcome.history.clients) == 6


def test_without_being_asked_nothing_is_judged_on_held_out_data() -> None:
    outcome = run(SETTINGS, backend="loop")
    assert outcome.history.held_out is None
    assert outcome.history.clients_held_out == []


def test_a_sample_is_for_what_is_judged_often_and_the_last_is_judged_on_all() -> None:
    whole, part = run(SETTINGS, backend="loop"), run(SETTINGS, backend="loop", test_sample=7)
    assert part.final == whole.final
    first = part.history.evaluations[0].metrics
    assert first != whole.history.evaluations[0].metrics
    assert first.accuracy * 7 == pytest.approx(round(first.accuracy * 7))
    for client in part.history.clients:
        assert client.accuracy * 7 == pytest.approx(round(client.accuracy * 7))


def test_a_sample_has_no_example_twice_and_is_the_same_for_a_seed() -> None:
    test = load_dataset(SETTINGS.local, 3).test
    one, same, other = (sampled(test, 20, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.features, same.features)
    assert not np.array_equal(one.features, other.features)
    assert len(np.unique(one.features, axis=0)) == 20
    assert sampled(test, len(test), 1) is test
