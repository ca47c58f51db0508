"""Training and evaluation at one hospital for one experiment."""

import math
from functools import lru_cache

import numpy as np
import torch

from learning.data import Partition
from learning.metrics import ClassCounts, Metrics
from learning.models import ModelError, count_parameters
from learning.settings import TrainingSettings
from learning.trainer import Layout, Network, Progress, TaskSpec, Trainer
from operation.config import SettingsError
from protocol.descriptor import Descriptor
from protocol.messages import RefusalCode
from protocol.model_bytes import Arrays, ModelBytesError, ModelState
from protocol.model_size import model_size
from protocol.randomness import TrainingStreams, shared_init_seed

from .refusal import Refused


def parse_settings(descriptor: Descriptor) -> TrainingSettings:
    """Return the trainer's settings; refuse a descriptor whose settings are not valid."""
    try:
        return TrainingSettings.parse(descriptor.training, source="descriptor")
    except SettingsError as error:
        raise Refused(RefusalCode.DESCRIPTOR_REFUSED, str(error)) from error


def check_network(
    descriptor: Descriptor, settings: TrainingSettings, partition: Partition, most: int
) -> None:
    """Refuse a network that does not fit the examples here or has too many parameters.

    Counted without building it: a hostile descriptor could ask for more than the memory holds.
    """
    here = partition.train.features.shape[1:]
    if descriptor.shape != here:
        raise Refused(
            RefusalCode.DESCRIPTOR_REFUSED,
            f"examples here have shape {here}, the experiment's have {descriptor.shape}",
        )
    try:
        numbers = count_parameters(
            settings.model,
            shape=descriptor.shape,
            classes=descriptor.classes,
            options=settings.options,
        )
    except ModelError as error:
        raise Refused(RefusalCode.DESCRIPTOR_REFUSED, str(error)) from error
    if numbers > most:
        raise Refused(RefusalCode.AGAINST_POLICY, f"{numbers} parameters are more than {most}")
    agreed = partition.classes  # never what is found in the data: refusals don't depend on patients
    if agreed is not None and descriptor.classes != len(agreed):
        raise Refused(
            RefusalCode.DESCRIPTOR_REFUSED,
            f"{len(agreed)} classes were agreed on, the experiment has {descriptor.classes}",
        )


class LocalTraining:
    """Trains the models of one experiment on this hospital's examples, one after another."""

    def __init__(
        self,
        descriptor: Descriptor,
        settings: TrainingSettings,
        partition: Partition,
        streams: TrainingStreams,
        device: str,
    ) -> None:
        self.settings = settings
        self._descriptor = descriptor
        self._task = TaskSpec(descriptor.shape, descriptor.classes)
        try:
            self._network = _shared_network(settings, self._task, device)
        except ModelError as error:
            raise Refused(RefusalCode.DESCRIPTOR_REFUSED, str(error)) from error
        self._streams = streams
        self._trainer = Trainer(self._network, partition.train, streams)
        self._held_out = partition.held_out
        if descriptor.first_model is not None and not descriptor.first_model_is_given:
            self.check_first_model(self.first_model())

    @property
    def parameters(self) -> int:
        """The number of the model's trainable parameters."""
        layout = self._network.parameter_layout
        return sum(math.prod(shape) for shape, _ in layout.values())

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """The names, shapes and types of parameters and buffers."""
        return self._network.parameter_layout, self._network.buffer_layout

    def read(self, payload: bytes, *, handed_over: bool = False) -> ModelState:
        """Parse a model, and refuse it unless its tensors are those of the experiment's network.

        A model that was `handed_over` carries its optimiser's state.
        """
        optimizer = self._trainer.optimizer_layout if handed_over else {}
        wire, network = self.settings.wire_dtype, self._network
        size = model_size(network.parameter_layout, network.buffer_layout, optimizer, wire=wire)
        try:
            size.check(payload)
            model = ModelState.from_bytes(payload, wire=wire)
        except ModelBytesError as error:
            raise Refused(RefusalCode.MODEL_MISMATCH, str(error)) from error
        _compare(self._network.parameter_layout, model.parameters)
        _compare(self._network.buffer_layout, model.buffers)
        _compare(optimizer, model.optimizer)
        return model

    def first_model(self) -> ModelState:
        """Build the first model: the one that all hospitals share, or this hospital's own."""
        wire = self.settings.wire_dtype
        if self._descriptor.init == "own":
            return _initial_model(self.settings, self._task, self._streams.init_seed())
        seed = shared_init_seed(self._descriptor.training_seed)
        shared = _initial_model(self.settings, self._task, seed)
        if wire == "same":
            return shared
        return ModelState.from_bytes(shared.to_bytes(wire=wire), wire=wire)  # as if it was sent

    def check_first_model(self, model: ModelState) -> None:
        """Refuse a shared first model that is not the one in the descriptor."""
        if model.digest(wire=self.settings.wire_dtype) != self._descriptor.first_model:
            raise Refused(
                RefusalCode.MODEL_MISMATCH,
                "the first model is not the one in the descriptor; if it is built from the seed, "
                f"the coordinator has another version of PyTorch than {torch.__version__}",
            )

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

    @property
    def held_out(self) -> int:
        """The number of held-out examples."""
        return len(self._held_out)

    def count_held_out(self, model: ModelState) -> ClassCounts:
        """Evaluate a model on the held-out examples, and count by class."""
        self._network.load(model.parameters, model.buffers)
        tensors = self._network.tensors(self._held_out)
        return self._network.count_correct(*tensors, self._descriptor.classes)


@lru_cache(maxsize=2)
def _shared_network(settings: TrainingSettings, task: TaskSpec, device: str) -> Network:
    """Return the network that models are loaded into, shared by all hospitals of a process."""
    return Network(settings, task, seed=0, device=device)


@lru_cache(maxsize=2)
def _initial_model(settings: TrainingSettings, task: TaskSpec, seed: int) -> ModelState:
    """Return a network's initial state; hospitals of one process share it."""
    return ModelState(*Network(settings, task, seed=seed).arrays())


def _compare(layout: Layout, given: Arrays) -> None:
    if set(layout) != set(given):
        raise Refused(RefusalCode.MODEL_MISMATCH, "has other tensors than the model")
    for name, (shape, dtype) in layout.items():
        if given[name].shape != shape or given[name].dtype != dtype:
            raise Refused(RefusalCode.MODEL_MISMATCH, f"{name} has another shape or type")
        if not np.isfinite(given[name]).all():
            raise Refused(RefusalCode.NOT_FINITE, f"{name} has values that are not finite")
