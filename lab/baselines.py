"""What every federated method is measured against: training alone, and pooling all data."""

from collections.abc import Callable

import numpy as np

from learning.data import Examples, Share
from learning.local_data import load_dataset, load_shares
from learning.metrics import Metrics
from learning.trainer import Network, TaskSpec, Trainer
from protocol.randomness import TrainingStreams, derive_seed, shared_init_seed
from server_app.config.run_config import Settings

Progress = Callable[[int, int], None]


def train_alone(settings: Settings, on_progress: Progress | None = None) -> list[Metrics]:
    """Let each hospital train by itself; return every model's figures on the test set."""
    shares = _shares(settings)
    figures = []
    for position, share in enumerate(shares):
        figures.append(
            _train(
                settings,
                share.train,
                position=position,
                rounds=settings.algorithm.rounds,
                batch_size=settings.training.batch_size,
                decay_every=settings.training.decay_every,
            )
        )
        if on_progress is not None:
            on_progress(position + 1, len(shares))
    return figures


def train_pooled(settings: Settings) -> Metrics:
    """Train one model on everybody's examples together, which hospitals may not do.

    It takes as many mini-batch steps, of the same size, as all hospitals together take in the
    federation, so that the two differ in where the data is and not in how much is computed.
    """
    shares = _shares(settings)
    hospitals = len(shares)
    pool = Examples(
        np.concatenate([share.train.features for share in shares]),
        np.concatenate([share.train.labels for share in shares]),
    )
    return _train(
        settings,
        pool,
        position=0,
        rounds=settings.algorithm.rounds * hospitals,
        batch_size=settings.training.batch_size or max(1, len(pool) // hospitals),
        decay_every=settings.training.decay_every * hospitals,
    )


def _shares(settings: Settings) -> tuple[Share, ...]:
    return load_shares(settings.local, settings.algorithm.hospitals, settings.algorithm.seed)


def _train(
    settings: Settings,
    examples: Examples,
    *,
    position: int,
    rounds: int,
    batch_size: int,
    decay_every: int,
) -> Metrics:
    """Train from the shared first model and judge on the test set, as the coordinator does."""
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
