"""The ways to train a leg, and which of them is fastest here: measured, not guessed."""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from lab.engine.data import HospitalData
from lab.engine.routes import Work
from lab.engine.stack import Stack
from lab.engine.training import Anchors, Training, Way
from learning.data import Examples
from learning.models import ModelError
from learning.settings import TrainingSettings
from learning.stacked import NotStackable, StackedNetwork
from learning.trainer import Network, TaskSpec, optimizer_spec
from protocol.model_bytes import ModelState

from .batched import Batched
from .looped import Looped
from .optimise_network import quicken

_TRIAL_HOSPITALS = 32
_TRIAL_TURNS, _TURN_SECONDS = 3, 0.07
# Convolutions of this size fill a core by themselves; batching them was slower on every CPU tried.
_LONG_STEP = 0.02


@dataclass(frozen=True)
class Ground:
    """What any way of training stands on."""

    training: TrainingSettings
    task: TaskSpec
    examples: Sequence[Examples]
    first_model: ModelState
    training_seed: bytes = field(repr=False)
    device: torch.device
    workers: int


@dataclass(frozen=True)
class Trainers:
    """A way of training with the stack that it trains."""

    way: Way
    stack: Stack
    training: Training


def trainers(way: Way, ground: Ground) -> Trainers:
    """Return the way asked for; `auto` tries what the network allows and takes the fastest."""
    return prepared(_fastest(ground) if way == "auto" else way, ground)


def prepared(way: Way, ground: Ground) -> Trainers:
    """Make stack and data for one way of training; the models are still to be filled in."""
    layout = torch.channels_last if way == "loop-channels-last" else torch.contiguous_format
    networks = [
        Network(
            ground.training, ground.task, seed=0, device=ground.device.type, memory_format=layout
        )
        for _ in range(1 if way == "batched" else ground.workers)
    ]
    quicken(networks, ground.task.shape, channels_last=way == "loop-channels-last")
    stack = Stack.of(
        ground.first_model,
        len(ground.examples),
        optimizer_spec(ground.training),
        device=ground.device,
        memory_format=layout,
    )
    data = HospitalData(
        ground.examples,
        batch_size=ground.training.batch_size,
        training_seed=ground.training_seed,
        device=ground.device,
        dtype=networks[0].dtype,
        memory_format=layout,
    )
    if way != "batched":
        return Trainers(way, stack, Looped(networks, stack, data, ground.training_seed))
    try:
        stacked = StackedNetwork(networks[0], ground.task.shape)
    except NotStackable as error:
        raise ModelError(
            f"model: {ground.training.model} can't be trained batched ({error}): use the loop"
        ) from error
    return Trainers(way, stack, Batched(networks[0], stacked, stack, data))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _fastest(ground: Ground) -> Way:
    """Let the ways take turns, so that a busy moment of the machine is every way's."""
    trials = [_Trial("loop", ground, 2 * ground.workers)]
    if len(ground.task.shape) == 3:
        # A plug-in's forward may insist on the usual order in memory.
        with contextlib.suppress(RuntimeError):
            trials.append(_Trial("loop-channels-last", ground, 2 * ground.workers))
    for trial in trials:
        trial.go_on()
    on_cpu = ground.device.type == "cpu"
    if not (on_cpu and ground.workers * min(trial.seconds for trial in trials) > _LONG_STEP):
        with contextlib.suppress(ModelError):
            trials.append(_Trial("batched", ground, _TRIAL_HOSPITALS))
    for _ in range(_TRIAL_TURNS):
        for trial in trials:
            trial.go_on()
    return min(trials, key=lambda trial: trial.seconds).way


class _Trial:
    """A way tried on copies of the first model; `seconds` are of its fastest client-round."""

    def __init__(self, way: Way, ground: Ground, hospitals: int) -> None:
        self.way = way
        few = Ground(**{**vars(ground), "examples": ground.examples[:hospitals]})
        self._everyone = np.arange(len(few.examples))
        self._round = 0
        on_trial = prepared(way, few)
        on_trial.stack.fill(self._everyone, ground.first_model)
        self._training = on_trial.training
        self._on_gpu = ground.device.type == "cuda"
        self._one_round()  # warms up
        self.seconds = self._one_round()

    def go_on(self) -> None:
        """Train for a moment, at least one round."""
        began = time.perf_counter()
        while True:
            self.seconds = min(self.seconds, self._one_round())
            if time.perf_counter() - began > _TURN_SECONDS:
                return

    def _one_round(self) -> float:
        count = len(self._everyone)
        work = Work(self._everyone, self._everyone, np.full(count, self._round), self._round)
        began = time.perf_counter()
        self._training.train(work, Anchors.none(count))
        if self._on_gpu:
            torch.cuda.synchronize()  # which else is still at work
        self._round += 1
        return (time.perf_counter() - began) / count
