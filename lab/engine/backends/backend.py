"""Prepare a training backend; `auto` measures which is fastest on this machine."""

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
from lab.engine.training_interface import Anchors, Backend, Training
from learning.data import Examples
from learning.models import ModelError
from learning.settings import TrainingSettings
from learning.stacked import StackedNetwork
from learning.stacked_layers import NotStackable
from learning.trainer import Network, TaskSpec, optimizer_spec
from protocol.model_bytes import ModelState

from .batched import Batched
from .looped import Looped
from .optimise_network import optimise_network

_TRIAL_HOSPITALS = 32
_TRIAL_TURNS, _TURN_SECONDS = 3, 0.07
# Seconds of a step. Longer ones fill a core by themselves: batching them was slower on every CPU.
_LONG_STEP = 0.02


@dataclass(frozen=True)
class TrainingInputs:
    """The inputs of every backend."""

    training: TrainingSettings
    task: TaskSpec
    examples: Sequence[Examples]
    first_model: ModelState
    training_seed: bytes = field(repr=False)
    device: torch.device
    workers: int


@dataclass(frozen=True)
class PreparedBackend:
    """A backend ready to train, and the stack of models it trains."""

    backend: Backend
    stack: Stack
    training: Training


def prepare(backend: Backend, inputs: TrainingInputs) -> PreparedBackend:
    """Prepare the requested backend; `auto` tries those that fit the network."""
    return _prepare(_fastest(inputs) if backend == "auto" else backend, inputs)


def _prepare(backend: Backend, inputs: TrainingInputs) -> PreparedBackend:
    """Allocate stack and data for one backend; the caller fills in the models."""
    layout = torch.channels_last if backend == "loop-channels-last" else torch.contiguous_format
    networks = [
        Network(
            inputs.training, inputs.task, seed=0, device=inputs.device.type, memory_format=layout
        )
        for _ in range(1 if backend == "batched" else inputs.workers)
    ]
    optimise_network(networks, inputs.task.shape, channels_last=backend == "loop-channels-last")
    stack = Stack.of(
        inputs.first_model,
        len(inputs.examples),
        optimizer_spec(inputs.training),
        device=inputs.device,
        memory_format=layout,
    )
    data = HospitalData(
        inputs.examples,
        batch_size=inputs.training.batch_size,
        training_seed=inputs.training_seed,
        device=inputs.device,
        dtype=networks[0].dtype,
        memory_format=layout,
    )
    if backend != "batched":
        return PreparedBackend(backend, stack, Looped(networks, stack, data, inputs.training_seed))
    try:
        stacked = StackedNetwork(networks[0], inputs.task.shape)
    except NotStackable as error:
        raise ModelError(
            f"model: {inputs.training.model} can't be trained batched ({error}): use backend loop"
        ) from error
    return PreparedBackend(backend, stack, Batched(networks[0], stacked, stack, data))


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _fastest(inputs: TrainingInputs) -> Backend:
    """Measure the backends in turns, so that a busy moment of the machine affects all of them."""
    trials = [_Trial("loop", inputs, 2 * inputs.workers)]
    if len(inputs.task.shape) == 3:
        # A plug-in's forward may require the contiguous memory format.
        with contextlib.suppress(RuntimeError):
            trials.append(_Trial("loop-channels-last", inputs, 2 * inputs.workers))
    for trial in trials:
        trial.measure()
    on_cpu = inputs.device.type == "cpu"
    if not (on_cpu and inputs.workers * min(trial.seconds for trial in trials) > _LONG_STEP):
        with contextlib.suppress(ModelError):
            trials.append(_Trial("batched", inputs, _TRIAL_HOSPITALS))
    for _ in range(_TRIAL_TURNS):
        for trial in trials:
            trial.measure()
    return min(trials, key=lambda trial: trial.seconds).backend


class _Trial:
    """Trains copies of the first model; `seconds` is the time of the fastest client-round."""

    def __init__(self, backend: Backend, inputs: TrainingInputs, hospitals: int) -> None:
        self.backend = backend
        few = TrainingInputs(**{**vars(inputs), "examples": inputs.examples[:hospitals]})
        self._everyone = np.arange(len(few.examples))
        self._round = 0
        on_trial = _prepare(backend, few)
        on_trial.stack.fill(self._everyone, inputs.first_model)
        self._training = on_trial.training
        self._on_gpu = inputs.device.type == "cuda"
        self._one_round()  # warms up
        self.seconds = self._one_round()

    def measure(self) -> None:
        """Train for `_TURN_SECONDS`, at least one round."""
        began = time.perf_counter()
        while True:
            self.seconds = min(self.seconds, self._one_round())
            if time.perf_counter() - began > _TURN_SECONDS:
                return

    def _one_round(self) -> float:
        count = len(self._everyone)
        work = Work(
            self._everyone,
            self._everyone,
            np.full(count, self._round),
            self._round,
            np.zeros_like(self._everyone),
        )
        began = time.perf_counter()
        self._training.train(work, Anchors.none(count))
        if self._on_gpu:
            torch.cuda.synchronize()  # kernels run asynchronously
        self._round += 1
        return (time.perf_counter() - began) / count
