"""Trials on all cores: processes that train one trial at a time."""

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
from lab.sweep.training import train
from lab.sweep.trial import Trial
from learning.data import DataError
from learning.models import ModelError
from operation import signals
from operation.config import SettingsError

INPUT_ERRORS = (SettingsError, DataError, ModelError)
_POLL = 0.2
_FAREWELL = 5.0  # seconds for ending a leg and keeping its checkpoint
Tell = Callable[[Trial, int], None]


class SweepFailed(RuntimeError):
    """A trial could not be trained; the message says why, `is_input` whether the user can help."""

    def __init__(self, message: str, *, is_input: bool = False) -> None:  # unpickled without it
        super().__init__(message)
        self.is_input = is_input


def train_all(
    trials: list[tuple[Trial, Path]],
    *,
    workers: int,
    cores: int,
    on_progress: Tell,
    stop: Callable[[], bool],
) -> Iterator[tuple[Trial, Record]]:
    """Train trials, each with a file for its checkpoint; yield each that is done.

    `workers` train at a time, each with so many cores, which it uses where it trains in a loop.

    Stopped, it waits for each process to end its leg and keep its checkpoint.
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
            worker.tell(training[worker])
        while training:
            if not stopping and stop():
                stopping, waiting = True, []
                for worker in training:
                    worker.tell("stop")
            for worker in _ready(training):
                trial, _ = training[worker]
                match worker.said():
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
                    worker.tell(training[worker])


def _one_by_one(
    trials: list[tuple[Trial, Path]], cores: int, on_progress: Tell, stop: Callable[[], bool]
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

    def tell(self, what: object) -> None:
        try:
            self.connection.send(what)
        except OSError:
            raise self._ended() from None

    def said(self) -> object:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> SweepFailed:
        self.process.join(timeout=5)
        return SweepFailed(
            f"a process that trained was ended from outside (exit code {self.process.exitcode}): "
            "is there enough memory? The same command goes on"
        )


@contextmanager
def _processes(count: int, cores: int) -> Iterator[list[_Worker]]:
    context = multiprocessing.get_context("spawn")
    team = []
    # Ctrl-C reaches every process of the terminal; it is this one that decides what it means.
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
            worker.process.join(timeout=_FAREWELL)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join(timeout=_FAREWELL)


def _ready(training: "dict[_Worker, tuple[Trial, Path]]") -> "list[_Worker]":
    ready = wait([worker.connection for worker in training], timeout=_POLL)
    return [worker for worker in training if worker.connection in ready]


def _work(connection: Connection, cores: int) -> None:
    """Train what comes through the connection until it is closed, also by a parent that died."""
    torch.set_num_threads(1)  # the cores are used by processes, and by loops
    asked_to_stop = False
    looked = 0.0

    def stop() -> bool:
        nonlocal asked_to_stop, looked
        if time.monotonic() - looked > _POLL:
            looked = time.monotonic()
            if connection.poll():
                asked_to_stop = True
                with suppress(EOFError):  # nobody is there any more
                    connection.recv()  # nothing but "stop" comes while a trial is under way
        return asked_to_stop

    try:
        while True:
            said = connection.recv()
            if said == "stop":
                continue
            trial, checkpoint = said
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
