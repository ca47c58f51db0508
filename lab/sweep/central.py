"""All hospitals' data in one place, which they may not do: the mark that others are held to."""

from collections.abc import Callable

from lab.engine import Diverged
from lab.engine.judging import pooled, sampled
from lab.sweep.record import Record
from lab.sweep.trial import Trial
from learning.local_data import load_dataset, load_shares
from learning.trainer import Network, Task, Trainer
from protocol.randomness import TrainingStreams, derive_seed, shared_init_seed


def train_centrally(
    trial: Trial, on_progress: Callable[[int], None], stop: Callable[[], bool] | None
) -> Record | None:
    """Train one model on the pool by mini-batches; its steps are shown along the same rounds.

    Decays of the learning rate keep their place in the whole.
    """
    assert trial.central is not None  # noqa: S101 (the caller's case)
    settings, steps = trial.settings, trial.central.steps
    seed, rounds = settings.algorithm.seed, settings.algorithm.rounds
    dataset = load_dataset(settings.local, seed)
    shares = load_shares(settings.local, settings.algorithm.hospitals, seed)
    training = settings.training.model_copy(
        update={
            "batch_size": trial.central.batch_size,
            "decay_every": settings.training.decay_every * steps // rounds,
        }
    )
    training_seed = derive_seed(seed, "training")
    network = Network(
        training,
        Task(dataset.shape, len(dataset.classes)),
        seed=shared_init_seed(training_seed),
        device=settings.local.device,
    )
    pool = pooled([share.train for share in shares])
    trainer = Trainer(network, pool, TrainingStreams(training_seed, 0))
    sample = network.tensors(sampled(dataset.test, trial.test_sample, seed))
    optimizer = trainer.fresh_optimizer()
    curve, accuracies, done = [], [], 0
    points = min(trial.evaluations, steps)
    for point in range(1, points + 1):
        until = steps * point // points
        optimizer, progress = trainer.train(done, until - done, optimizer, anchor=None)
        done = until
        round_ = rounds * point // points
        accuracies.append((round_, progress.accuracy))
        if not progress.loss < float("inf"):
            raise Diverged(f"step {done}: the loss is not finite; lower the learning rate")
        on_progress(done)
        if point < points and stop is not None and stop():
            return None
        last = point == points
        figures = network.evaluate(*(network.tensors(dataset.test) if last else sample))
        curve.append((round_, 0, 0, figures.accuracy, figures.balanced_accuracy))
    held_out = pooled([share.held_out for share in shares])
    return Record(
        trial.variant,
        trial.method,
        trial.seed,
        trial.learning_rate,
        "done",
        test=figures,
        held_out=network.evaluate(*network.tensors(held_out)) if len(held_out) else None,
        trained_on=network.evaluate(*network.tensors(pool)),
        curve=curve,
        training=accuracies,
    )
