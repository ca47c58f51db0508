"""Training on the pooled data of all hospitals: the reference for all federated methods."""

from collections.abc import Callable
from pathlib import Path

from lab.engine import Diverged
from lab.engine.device import chosen_device
from lab.engine.evaluation import pooled, sampled
from lab.sweep.central_checkpoint import CentralCheckpoints, CentralState
from lab.sweep.record import Record
from lab.sweep.trial import Trial
from learning.local_data import load_dataset, load_partitions
from learning.trainer import Network, TaskSpec, Trainer
from protocol.randomness import TrainingStreams, derive_seed, shared_init_seed

# Steps between two calls of `stop`: at most a few seconds, also for large networks.
_SLICE = 50


def train_centrally(
    trial: Trial,
    checkpoint: Path | None,
    on_progress: Callable[[int], None],
    stop: Callable[[], bool] | None,
) -> Record | None:
    """Train one model on the pooled data; its steps are mapped to the federated rounds.

    Learning rate decays are scaled accordingly. Returns None if the training was stopped; it
    continues from its checkpoint.
    """
    assert trial.central is not None  # noqa: S101 (the caller's case)
    settings, steps = trial.settings, trial.central.steps
    seed, rounds = settings.algorithm.seed, settings.algorithm.rounds
    dataset = load_dataset(settings.local, seed)
    partitions = load_partitions(settings.local, settings.algorithm.hospitals, seed)
    training = settings.training.model_copy(
        update={
            "batch_size": trial.central.batch_size,
            "decay_every": settings.training.decay_every * steps // rounds,
        }
    )
    training_seed = derive_seed(seed, "training")
    network = Network(
        training,
        TaskSpec(dataset.shape, len(dataset.classes)),
        seed=shared_init_seed(training_seed),
        device=chosen_device(settings.local).type,
    )
    pool = pooled([partition.train for partition in partitions])
    trainer = Trainer(network, pool, TrainingStreams(training_seed, 0))
    sample = network.tensors(sampled(dataset.test, trial.test_sample, seed))
    held_out = pooled([partition.held_out for partition in partitions])
    validation = network.tensors(held_out) if len(held_out) else None
    checkpoints = CentralCheckpoints(checkpoint, trial.key)
    state = checkpoints.load(network) or CentralState(trainer.fresh_optimizer())
    points = min(trial.evaluations, steps)
    for point in range(len(state.curve) + 1, points + 1):
        until = steps * point // points
        while state.done < until:
            count = min(_SLICE, until - state.done)
            state.optimizer, progress = trainer.train(
                state.done, count, state.optimizer, anchor=None
            )
            state.add(count, progress)
            if not progress.loss < float("inf"):
                raise Diverged(
                    f"step {state.done}: the loss is not finite; lower the learning rate"
                )
            on_progress(state.done)
            stopping = state.done < steps and stop is not None and stop()
            checkpoints.keep(network, state, now=stopping)
            if stopping:
                return None
        round_, last = rounds * point // points, point == points
        metrics = network.evaluate(*(network.tensors(dataset.test) if last else sample))
        state.evaluated(round_, metrics, network.evaluate(*validation) if validation else None)
    return Record(
        trial.variant,
        trial.method,
        trial.seed,
        trial.learning_rate,
        "done",
        test=metrics,
        binary=network.evaluate_binary(*network.tensors(dataset.test)),
        held_out=network.evaluate(*validation) if validation else None,
        trained_on=network.evaluate(*network.tensors(pool)),
        curve=state.curve,
        training=state.accuracies,
    )
