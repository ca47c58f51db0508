"""Train one trial: on the engine, or on pooled data."""

import math
from collections.abc import Callable
from dataclasses import replace
from logging import ERROR
from pathlib import Path

from lab.engine import Backend, Diverged, History, Speed, run
from lab.engine.evaluation import pooled
from lab.sweep.central import train_centrally
from lab.sweep.record import Record, mean_metrics
from lab.sweep.stopwatch import Stopwatch
from lab.sweep.trial import Trial
from learning.local_data import load_dataset, load_partitions
from learning.trainer import Network, TaskSpec
from operation.flower.logger import only_from
from protocol.model_bytes import ModelState
from protocol.randomness import derive_seed, shared_init_seed
from server_app.config.run_config import Settings

Progress = Callable[[int], None]
_POINTS = 300
_AUTO: dict[str, Backend] = {}


def train(
    trial: Trial,
    *,
    workers: int = 1,
    checkpoint: Path | None = None,
    on_progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Record | None:
    """Return the record of a trial; None if it was stopped and can continue from its checkpoint."""
    watch = Stopwatch(checkpoint)

    def report(done: int) -> None:
        watch.note()
        if on_progress is not None:
            on_progress(done)

    try:
        # No warnings of Flower: that a method may fail is a result of the experiment.
        with only_from(ERROR):
            if trial.central:
                record = train_centrally(trial, checkpoint, report, stop)
            else:
                record = _train_federated(trial, workers, checkpoint, report, stop)
    except Diverged as error:
        record = _record(trial, status="diverged", reason=str(error))
    if record is None:
        watch.note(now=True)
        return None
    if record.status == "done" and record.test and not math.isfinite(record.test.loss):
        record = _record(trial, status="diverged", reason="the last model's loss is not finite")
    return replace(record, seconds=watch.seconds, client_rounds=trial.client_rounds)


def _train_federated(
    trial: Trial,
    workers: int,
    checkpoint: Path | None,
    report: Progress,
    stop: Callable[[], bool] | None,
) -> Record | None:
    settings = trial.settings
    hospitals = settings.algorithm.hospitals

    def on_progress(speed: Speed) -> None:
        report(speed.round * hospitals)

    kind = f"{settings.training.model}{settings.training.model_options}{settings.local}"
    outcome = run(
        settings,
        # `auto` is measured once per process: the measurement can take as long as a run.
        backend=_AUTO.get(kind, trial.backend) if trial.backend == "auto" else trial.backend,
        workers=workers,
        evaluate_every=max(1, settings.algorithm.rounds // trial.evaluations),
        evaluate_held_out=settings.local.held_out > 0,
        test_sample=trial.test_sample,
        on_progress=on_progress,
        checkpoint=checkpoint,
        stop=stop,
    )
    if not outcome.complete:
        return None
    _AUTO[kind] = outcome.backend
    history = outcome.history
    return _record(
        trial,
        status="done",
        test=outcome.final,
        clients=mean_metrics(history.clients),
        held_out=history.held_out,
        clients_held_out=mean_metrics(history.clients_held_out),
        **_last_model(settings, outcome.model),
        **_curves(history),
        hand_overs=history.hand_overs,
        aggregations=history.aggregations,
        messages=history.messages,
        backend=outcome.backend,
    )


def _curves(history: History) -> dict[str, object]:
    stride = math.ceil(len(history.training) / _POINTS)
    training = history.training[::-1][::stride][::-1]  # always includes the last one
    return {
        "curve": [
            (
                point.round,
                point.aggregations,
                point.messages,
                point.metrics.accuracy,
                point.metrics.balanced_accuracy,
                point.held_out.accuracy if point.held_out else None,
                point.held_out.balanced_accuracy if point.held_out else None,
            )
            for point in history.evaluations
        ],
        "training": [(round_, *accuracies) for round_, _, *accuracies in training],
    }


def _last_model(settings: Settings, model: ModelState) -> dict[str, object]:
    """Return the last aggregate's metrics on the training data, and for two classes its AUC."""
    seed = settings.algorithm.seed
    dataset = load_dataset(settings.local, seed)
    partitions = load_partitions(settings.local, settings.algorithm.hospitals, seed)
    init = shared_init_seed(derive_seed(seed, "training"))
    network = Network(settings.training, TaskSpec(dataset.shape, len(dataset.classes)), seed=init)
    network.load(model.parameters, model.buffers)
    examples = pooled([partition.train for partition in partitions])
    return {
        "trained_on": network.evaluate(*network.tensors(examples)),
        "binary": network.evaluate_binary(*network.tensors(dataset.test)),
    }


def _record(trial: Trial, **values: object) -> Record:
    return Record(
        trial.variant,
        trial.method,
        trial.seed,
        trial.learning_rate,
        **values,  # type: ignore[arg-type]
    )
