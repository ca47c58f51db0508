"""Baselines of the demo: every hospital trains alone, and training on pooled data."""

from collections.abc import Callable

import numpy as np

from learning.data import Examples, Partition
from learning.local_data import load_dataset, load_partitions
from learning.metrics import Metrics
from learning.trainer import Network, TaskSpec, Trainer
from protocol.randomness import TrainingStreams, derive_seed, shared_init_seed
from server_app.config.run_config import Settings

Progress = Callable[[int, int], None]


def train_alone(settings: Settings, on_progress: Progress | None = None) -> list[Metrics]:
    """Train each hospital's model alone; return the metrics of each on the test set."""
    partitions = _partitions(settings)
    metrics = []
    for position, partition in enumerate(partitions):
        metrics.append(
            _train(
                settings,
                partition.train,
                position=position,
                rounds=settings.algorithm.rounds,
                batch_size=settings.training.batch_size,
                decay_every=settings.training.decay_every,
            )
        )
        if on_progress is not None:
            on_progress(position + 1, len(partitions))
    return metrics


def train_pooled(settings: Settings) -> Metrics:
    """Train one model on the pooled examples of all hospitals, which is not allowed in practice.

    It takes as many mini-batch steps of the same size as all hospitals together take in the
    federation, so that both do the same amount of computation.
    """
    partitions = _partitions(settings)
    hospitals = len(partitions)
    pool = Examples(
        np.concatenate([partition.train.features for partition in partitions]),
        np.concatenate([partition.train.labels for partition in partitions]),
    )
    return _train(
        settings,
        pool,
        position=0,
        rounds=settings.algorithm.rounds * hospitals,
        batch_size=settings.training.batch_size or max(1, len(pool) // hospitals),
        decay_every=settings.training.decay_every * hospitals,
    )


def _partitions(settings: Settings) -> tuple[Partition, ...]:
    return load_partitions(settings.local, settings.algorithm.hospitals, settings.algorithm.seed)


def _train(
    settings: Settings,
    examples: Examples,
    *,
    position: int,
    rounds: int,
    batch_size: int,
    decay_every: int,
) -> Metrics:
    """Train from the shared first model and evaluate on the test set, as the coordinator does."""
    dataset = load_dataset(settings.local, settings.algorithm.seed)
    seed = derive_seed(settings.algorithm.seed, "training")
    training = settings.training.model_copy(
        update={"batch_size": batch_size, "decay_every": decay_every}
    )
    network = Network(
        training,
        TaskSpec(dataset.shape, len(dataset.classes)),
        seed=shared_init_seed(seed),
        device=settings.local.device,
    )
    trainer = Trainer(network, examples, TrainingStreams(seed, position))
    trainer.train(0, rounds, trainer.fresh_optimizer(), anchor=None)
    return network.evaluate(*network.tensors(dataset.test))
