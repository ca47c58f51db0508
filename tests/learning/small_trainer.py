"""A trainer small enough to compute a second time, on streams that a reader can follow."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from learning.data import Examples
from learning.settings import TrainingSettings
from learning.trainer import Arrays, Network, TaskSpec, Trainer

SHAPE, CLASSES = (5,), 3


class FixedStreams:
    """Streams that a reader can follow: round t takes rows t, t+1, … and has the seed 100 + t."""

    def batch(self, round_: int, examples: int, size: int) -> NDArray[np.int64]:
        return (round_ + np.arange(size)) % examples

    def dropout_seed(self, round_: int) -> int:
        return 100 + round_


class OtherSeeds(FixedStreams):
    def dropout_seed(self, round_: int) -> int:
        return 900 + round_


def examples(count: int = 7, shape: tuple[int, ...] = SHAPE, classes: int = CLASSES) -> Examples:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(count, *shape)).astype(np.float32)
    return Examples(features, rng.integers(0, classes, count))


def parsed(**changes: Any) -> TrainingSettings:
    values = {"model-options": '{"hidden": [4]}', "precision": "float64", "batch-size": 3}
    values |= {key.replace("_", "-"): value for key, value in changes.items()}
    return TrainingSettings.parse(values, source="test")


def trainer(
    streams: FixedStreams | None = None, data: Examples | None = None, **changes: Any
) -> Trainer:
    network = Network(parsed(**changes), TaskSpec(SHAPE, CLASSES), seed=1)
    return Trainer(network, data or examples(), streams or FixedStreams())


def train(who: Trainer, first: int, rounds: int, *, anchor: Arrays | None = None) -> Arrays:
    """Train from a fresh optimiser; return the new parameters."""
    who.train(first, rounds, who.fresh_optimizer(), anchor)
    return who.network.arrays()[0]


def twin(who: Trainer) -> nn.Module:
    """Return the trainer's network, built by hand with the same first weights."""
    network = nn.Sequential()
    network.add_module("linear1", nn.Linear(5, 4))
    network.add_module("relu", nn.ReLU())
    network.add_module("output", nn.Linear(4, 3))
    network.double()
    for name, tensor in network.named_parameters():
        tensor.data = torch.tensor(who.network.arrays()[0][name])
    return network


def assert_close(ours: Arrays, theirs: Arrays) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-10, atol=1e-12, err_msg=name)


def assert_differ(ours: Arrays, theirs: Arrays) -> None:
    assert any(not np.allclose(ours[name], theirs[name], rtol=1e-6) for name in ours)
