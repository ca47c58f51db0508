"""Training and evaluation at one hospital for one experiment."""

import math
from functools import lru_cache

import numpy as np

from learning.data import Partition
from learning.metrics import Metrics
from learning.models import ModelError
from learning.settings import TrainingSettings
from learning.trainer import Layout, Network, Progress, TaskSpec, Trainer
from operation.config import SettingsError
from protocol.descriptor import Descriptor
from protocol.messages import RefusalCode
from protocol.model_bytes import Arrays, ModelBytesError, ModelState
from protocol.randomness import TrainingStreams

from .refusal import Refused


class LocalTraining:
    """Trains the models of one experiment on this hospital's examples, one after another."""

    def __init__(
        self, descriptor: Descriptor, partition: Partition, position: int, device: str
    ) -> None:
        here = partition.train.features.shape[1:]
        if descriptor.shape != here:
            raise Refused(
                RefusalCode.DESCRIPTOR_REFUSED,
                f"examples here have shape {here}, the experiment's have {descriptor.shape}",
            )
        try:
            self.settings = TrainingSettings.parse(descriptor.training, source="descriptor")
            self._task = TaskSpec(descriptor.shape, descriptor.classes)
            self._network = _shared_network(self.settings, self._task, device)
        except (SettingsError, ModelError) as error:
            raise Refused(RefusalCode.DESCRIPTOR_REFUSED, str(error)) from error
        for labels in (partition.train.labels, partition.held_out.labels):
            if len(labels) and labels.max() >= descriptor.classes:
                raise Refused(
                    RefusalCode.DESCRIPTOR_REFUSED,
                    f"examples here have more than {descriptor.classes} classes",
                )
        self._streams = TrainingStreams(descriptor.training_seed, position)
        self._trainer = Trainer(self._network, partition.train, self._streams)
        self._held_out = partition.held_out

    def read(self, payload: bytes, *, handed_over: bool = False) -> ModelState:
        """Parse a model, and refuse it unless its tensors are those of the experiment's network.

        A model that was `handed_over` carries its optimiser's state.
        """
        optimizer = self._trainer.optimizer_layout if handed_over else {}
        layouts = (self._network.parameter_layout, self._network.buffer_layout, optimizer)
        if len(payload) > _most_bytes(layouts):
            raise Refused(
                RefusalCode.MODEL_MISMATCH, f"{len(payload)} bytes are too many for this model"
            )
        try:
            model = ModelState.from_bytes(payload, wire=self.settings.wire_dtype)
        except ModelBytesError as error:
            raise Refused(RefusalCode.MODEL_MISMATCH, str(error)) from error
        _compare(self._network.parameter_layout, model.parameters)
        _compare(self._network.buffer_layout, model.buffers)
        _compare(optimizer, model.optimizer)
        return model

    def own_model(self) -> ModelState:
        """Return the model that this hospital initialises itself (init = own)."""
        network = Network(self.settings, self._task, seed=self._streams.init_seed())
        return ModelState(*network.arrays())

    def fresh_optimizer(self) -> Arrays:
        return self._trainer.fresh_optimizer()

    def train(
        self,
        model: ModelState,
        first_round: int,
        local_rounds: int,
        optimizer: Arrays,
        anchor: Arrays | None,
    ) -> tuple[ModelState, Progress]:
        """Return the trained model with its optimiser's state, and the training metrics."""
        self._network.load(model.parameters, model.buffers)
        state, progress = self._trainer.train(first_round, local_rounds, optimizer, anchor)
        parameters, buffers = self._network.arrays()
        return ModelState(parameters, buffers, state), progress

    def evaluate(self, model: ModelState, minimum: int) -> Metrics | None:
        """Evaluate a model on the held-out examples, or return None if fewer than `minimum`."""
        if len(self._held_out) < max(1, minimum):
            return None
        self._network.load(model.parameters, model.buffers)
        return self._network.evaluate(*self._network.tensors(self._held_out))


@lru_cache(maxsize=2)
def _shared_network(settings: TrainingSettings, task: TaskSpec, device: str) -> Network:
    """Return the network that models are loaded into, shared by all hospitals of a process."""
    return Network(settings, task, seed=0, device=device)


def _most_bytes(layouts: tuple[Layout, ...]) -> int:
    """Return a limit for the bytes of such a model, so that longer payloads are not parsed."""
    entries = [(name, *form) for layout in layouts for name, form in layout.items()]
    return 1024 + sum(
        math.prod(shape) * dtype.itemsize + 6 * len(name) + 32 * len(shape) + 256
        for name, shape, dtype in entries
    )


def _compare(layout: Layout, given: Arrays) -> None:
    if set(layout) != set(given):
        raise Refused(RefusalCode.MODEL_MISMATCH, "has other tensors than the model")
    for name, (shape, dtype) in layout.items():
        if given[name].shape != shape or given[name].dtype != dtype:
            raise Refused(RefusalCode.MODEL_MISMATCH, f"{name} has another shape or type")
        if not np.isfinite(given[name]).all():
            raise Refused(RefusalCode.NOT_FINITE, f"{name} has values that are not finite")
