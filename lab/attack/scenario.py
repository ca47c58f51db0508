"""The attacked study: its aggregates, and the hand-overs that follow them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.engine import run
from lab.engine.evaluation import pooled
from lab.engine.private.budget import run_epsilon
from lab.engine.private.prepare_private import simulated_noise
from learning.data import Examples
from learning.local_data import load_dataset, load_partitions
from learning.privacy import PatientGradients, Patients, private_step
from learning.trainer import Network, TaskSpec, local_step, optimizer_spec
from operation.config import Scalar
from protocol.model_bytes import ModelState
from protocol.randomness import derive_seed, shared_init_seed
from server_app.config.run_config import Settings

OWN_RECORDS = 180
# The first three aggregations: gradients are largest, and an attack succeeds most often, early.
_AGGREGATES = (3, 6, 9)
_STUDY: dict[str, Scalar] = {
    "dataset": "digits",
    "model": "mlp",
    "model-options": '{"hidden": [32]}',
    "hospitals": 50,
    "examples": 8,
    "held-out": 4,
    "rounds": 200,
    "daisy-period": 1,
    "aggregation-period": 3,
    "nominal-patients": 8,
}
# ε = 8 over 200 rounds, with cancelled noise as in the experiment `privacy`.
_NOISE: dict[str, Scalar] = {
    "privacy-unit": "patient",
    "noise-multiplier": 8.274,
    "average-noise-multiplier": 8.971,
    "clip-norm": 1.0,
    "learning-rate": 0.15,
}
_NO_NOISE: dict[str, Scalar] = {"learning-rate": 0.3}


@dataclass(frozen=True)
class HandOver:
    """A model that the attacker receives, and the records it was trained on."""

    update: Tensor
    """(aggregate − received model) / learning rate, as one vector."""

    model: ModelState
    members: Examples


@dataclass(frozen=True)
class Wave:
    """All hospitals' first hand-overs after an aggregation."""

    aggregate: ModelState
    hand_overs: list[HandOver]


def study(*, noise: bool, seed: int = 0, batch: int | None = None) -> Settings:
    """Return the settings of the attacked study; with `batch`, of one with so few records each.

    Reconstruction is shown on the default network: a wider first layer tells more.
    """
    values = _STUDY | (_NOISE if noise else _NO_NOISE) | {"seed": seed}
    if batch is not None:
        values |= {"examples": batch, "nominal-patients": batch, "model-options": "{}"}
    return Settings.from_run_config(values, source="feddc lab attack")


@dataclass(frozen=True)
class Knowledge:
    """The attacker's own records, and records that no hospital trained on, to measure it by."""

    network: Network
    own: Examples
    strangers: Examples


def knowledge(settings: Settings) -> Knowledge:
    """Give the attacker the first records that hospitals hold out."""
    seed = settings.algorithm.seed
    dataset = load_dataset(settings.local, seed)
    partitions = load_partitions(settings.local, settings.algorithm.hospitals, seed)
    spare = pooled([partition.held_out for partition in partitions])
    return Knowledge(
        _network(settings), spare.take(range(min(OWN_RECORDS, len(spare)))), dataset.test
    )


def accuracy_and_epsilon(settings: Settings) -> tuple[float, float | None]:
    """Train the whole study; return its test accuracy and what a patient spends."""
    outcome = run(settings, backend="batched", evaluate_every=10_000, evaluate_clients=False)
    if outcome.final is None:
        raise RuntimeError("the study was not evaluated")
    return outcome.final.accuracy, run_epsilon(settings)


def waves(settings: Settings) -> Iterator[Wave]:
    """Yield the hand-overs that follow some of the study's aggregations."""
    for rounds in _AGGREGATES:
        shorter = _ended_after(settings, rounds)
        outcome = run(shorter, backend="batched", evaluate_every=10_000, evaluate_clients=False)
        yield Wave(outcome.model, list(hand_overs_after(settings, outcome.model, rounds)))


def _ended_after(settings: Settings, rounds: int) -> Settings:
    """Return the same study, ended earlier: its last aggregate is one of the longer study's."""
    return replace(settings, algorithm=settings.algorithm.model_copy(update={"rounds": rounds}))


def hand_overs_after(
    settings: Settings, aggregate: ModelState, round_: int, hospitals: int | None = None
) -> Iterator[HandOver]:
    """Train the aggregate for one round at each hospital, as the hospital would, and hand it on.

    `hospitals` limits it to the first of them.
    """
    training = settings.training
    network = _network(settings)
    spec = optimizer_spec(training)
    noise = simulated_noise(settings).source
    partitions = load_partitions(
        settings.local, settings.algorithm.hospitals, settings.algorithm.seed
    )
    for hospital, partition in enumerate(partitions[:hospitals]):
        network.load(aggregate.parameters, dict(aggregate.buffers))
        before = flat(network.parameters.values())
        if training.privacy_unit == "none":
            local_step(network, spec, round_, network.tensors(partition.train), {}, None)
        else:
            stream = noise.source("hospital", hospital).stream("round", round_)
            patients = Patients.of(network, partition.train)
            private_step(PatientGradients(network), spec, round_, patients, {}, noise=stream)
        update = (before - flat(network.parameters.values())) / training.learning_rate_at(round_)
        yield HandOver(update, ModelState(*network.arrays()), partition.train)


def first_model(settings: Settings) -> ModelState:
    """Return the model that all hospitals begin with."""
    return ModelState(*_network(settings).arrays())


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Return all numbers as one vector in float64."""
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors])


def _network(settings: Settings) -> Network:
    dataset = load_dataset(settings.local, settings.algorithm.seed)
    task = TaskSpec(dataset.shape, len(dataset.classes))
    seed = shared_init_seed(derive_seed(settings.algorithm.seed, "training"))
    return Network(settings.training, task, seed=seed)


def example_rows(examples: Examples) -> NDArray[np.float64]:
    """Return the features as rows."""
    return examples.features.reshape(len(examples), -1).astype(np.float64)
