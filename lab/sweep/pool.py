"""A pool of processes that train one trial each at a time."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from lab.sweep.record import Record
from lab.sweep.train_trial import train
from lab.sweep.trial import Trial
from learning.data import DataError
from learning.models import ModelError
from operation.config import SettingsError
from operation.processes import signals

INPUT_ERRORS = (SettingsError, DataError, ModelError)
_POLL = 0.2
_STOP_SECONDS = 5.0  # to finish a leg and save its checkpoint
OnProgress = Callable[[Trial, int], None]


class SweepFailed(RuntimeError):
    """A trial failed; `is_input` if the user's input is the cause."""

    def __init__(self, message: str, *, is_input: bool = False) -> None:  # unpickled without it
        super().__init__(message)
        self.is_input = is_input


def train_all(
    trials: list[tuple[Trial, Path]],
    *,
    workers: int,
    cores: int,
    on_progress: OnProgress,
    stop: Callable[[], bool],
) -> Iterator[tuple[Trial, Record]]:
    """Train trials, each with a checkpoint file; yield each finished trial.

    `workers` processes train at a time. Each may use `cores` cores where it trains in a loop. When
    stopped, the function waits for each process to finish its leg and save its checkpoint.
    """
    workers = min(workers, len(trials))
    if workers <= 1:
        yield from _one_by_one(trials, cores, on_progress, stop)
        return
    with _processes(workers, cores) as team:
        waiting, training = list(trials), {}
        stopping = False
        for worker in team:
            training[worker] = waiting.pop(0)
            worker.send(training[worker])
        while training:
            if not stopping and stop():
                stopping, waiting = True, []
                for worker in training:
                    worker.send("stop")
            for worker in _ready(training):
                trial, _ = training[worker]
                match worker.receive():
                    case int(done):
                        on_progress(trial, done)
                        continue
                    case Record() as record:
                        yield trial, record
                    case SweepFailed() as failure:
                        raise failure
                    case None:
                        pass
                del training[worker]
                if waiting:
                    training[worker] = waiting.pop(0)
                    worker.send(training[worker])


def _one_by_one(
    trials: list[tuple[Trial, Path]], cores: int, on_progress: OnProgress, stop: Callable[[], bool]
) -> Iterator[tuple[Trial, Record]]:
    for trial, checkpoint in trials:
        try:
            record = train(
                trial,
                workers=cores,
                checkpoint=checkpoint,
                on_progress=lambda done, trial=trial: on_progress(trial, done),  # type: ignore[misc]
                stop=stop,
            )
        except Exception as error:
            raise _failure(trial, error) from error
        if record is None:
            return
        yield trial, record
        if stop():
            return


def _failure(trial: Trial, error: Exception) -> SweepFailed:
    if isinstance(error, INPUT_ERRORS):
        return SweepFailed(str(error), is_input=True)
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return SweepFailed(f"{trial}: {reason}", is_input=False)


@dataclass(frozen=True, eq=False)
class _Worker:
    process: SpawnProcess
    connection: Connection

    def send(self, what: object) -> None:
        try:
            self.connection.send(what)
        except OSError:
            raise self._ended() from None

    def receive(self) -> object:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> SweepFailed:
        self.process.join(timeout=5)
        return SweepFailed(
            f"a training process was killed (exit code {self.process.exitcode}): is there enough "
            "memory? Run the same command again to continue"
        )


@contextmanager
def _processes(count: int, cores: int) -> Iterator[list[_Worker]]:
    context = multiprocessing.get_context("spawn")
    team = []
    # Ctrl-C reaches every process of the terminal; only this one handles it.
    with signals.ignored((signals.SIGINT,)):
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, cores), daemon=True)
            process.start()
            theirs.close()
            team.append(_Worker(process, ours))
    try:
        yield team
    finally:
        for worker in team:
            worker.connection.close()
        for worker in team:
            worker.process.join(timeout=_STOP_SECONDS)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join(timeout=_STOP_SECONDS)


def _ready(training: "dict[_Worker, tuple[Trial, Path]]") -> "list[_Worker]":
    ready = wait([worker.connection for worker in training], timeout=_POLL)
    return [worker for worker in training if worker.connection in ready]


def _work(connection: Connection, cores: int) -> None:
    """Train the trials received on the connection until it is closed or the parent is gone."""
    torch.set_num_threads(1)  # the cores are used by processes and by the loop backend
    asked_to_stop = False
    looked = 0.0

    def stop() -> bool:
        nonlocal asked_to_stop, looked
        if time.monotonic() - looked > _POLL:
            looked = time.monotonic()
            if connection.poll():
                asked_to_stop = True
                with suppress(EOFError):  # the parent is gone
                    connection.recv()  # only "stop" is sent while a trial is running
        return asked_to_stop

    try:
        while True:
            message = connection.recv()
            if message == "stop":
                continue
            trial, checkpoint = message
            try:
                answer: object = train(
                    trial,
                    workers=cores,
                    checkpoint=checkpoint,
                    on_progress=connection.send,
                    stop=stop,
                )
            except Exception as error:
                answer = _failure(trial, error)
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
