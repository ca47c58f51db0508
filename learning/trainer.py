"""Local training: one mini-batch step per round, independent of machine and leg."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from . import optimizers
from .data import Examples
from .device import find_device
from .losses import loss_of, predictions, probabilities
from .metrics import (
    BinaryMetrics,
    ClassCounts,
    Metrics,
    count_correct,
    evaluate,
    evaluate_binary,
    outputs_of,
)
from .models import ModelError, build
from .optimizers import OptimizerSpec
from .settings import TrainingSettings

Arrays = dict[str, NDArray[np.generic]]
Layout = dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]


class Streams(Protocol):
    """A trainer's source of randomness: one hospital's streams, keyed by round."""

    def batch(self, round_: int, examples: int, size: int) -> NDArray[np.int64]:
        """Draw the round's mini-batch, `size` of `examples` rows without replacement."""

    def dropout_seed(self, round_: int) -> int:
        """Return the seed for random operations inside the network in this round."""


@dataclass(frozen=True)
class TaskSpec:
    """The task of a model: the shape of an example and the number of classes."""

    shape: tuple[int, ...]
    classes: int


class Network:
    """A network whose state moves in and out as named arrays.

    `parameters` are its trainable floating-point tensors, `buffers` the rest of its state.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        task: TaskSpec,
        *,
        seed: int,
        device: str = "cpu",
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.device = find_device(device, settings)
        module = build(
            settings.model,
            shape=task.shape,
            classes=task.classes,
            options=settings.options,
            seed=seed,
        )
        self.settings = settings
        self.task = task
        self.dtype = torch.float64 if settings.precision == "float64" else torch.float32
        self.module: nn.Module = module.to(self.device, self.dtype).to(memory_format=memory_format)
        trainable = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        self.parameters: dict[str, Tensor] = dict(trainable)
        # By identity: a weight shared by two layers has two names in the state.
        shared = {id(parameter) for parameter in trainable.values()}
        self.buffers: dict[str, Tensor] = {
            name: tensor
            for name, tensor in self.module.state_dict(keep_vars=True).items()
            if id(tensor) not in shared
        }
        self.parameter_layout = _layout(self.parameters)
        self.buffer_layout = _layout(self.buffers)
        if not trainable:
            raise ModelError(f"model: {settings.model} has no trainable parameters")
        self._check_outputs(task)

    def load(self, parameters: Mapping[str, NDArray[np.generic]], buffers: Arrays) -> None:
        """Load a state with this network's names, shapes and types."""
        with torch.no_grad():
            for own, given in ((self.parameters, parameters), (self.buffers, buffers)):
                for name, tensor in own.items():
                    tensor.copy_(torch.from_numpy(given[name]))

    def arrays(self) -> tuple[Arrays, Arrays]:
        """Return copies of parameters and buffers."""
        return _copies(self.parameters), _copies(self.buffers)

    def tensors(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """Return features and labels as tensors of this network's device and precision."""
        features = torch.from_numpy(examples.features).to(self.device, self.dtype)
        return features, torch.from_numpy(examples.labels).to(self.device)

    def evaluate(self, features: Tensor, labels: Tensor) -> Metrics:
        return evaluate(self.module, features, labels, self.settings.loss)

    def evaluate_binary(self, features: Tensor, labels: Tensor) -> BinaryMetrics | None:
        """Return AUC, sensitivity and specificity where there are two classes."""
        return evaluate_binary(self.module, features, labels)

    def count_correct(self, features: Tensor, labels: Tensor, classes: int) -> ClassCounts:
        return count_correct(self.module, features, labels, self.settings.loss, classes)

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the probability of each class for examples, in eval mode."""
        if not len(features):
            return np.zeros((0, self.task.classes))
        given = torch.from_numpy(features).to(self.device, self.dtype)
        return probabilities(outputs_of(self.module, given)).cpu().numpy()

    def _check_outputs(self, task: TaskSpec) -> None:
        """Raise a ModelError if the loss does not fit the network's outputs."""
        self.module.eval()
        with torch.no_grad():
            example = torch.zeros(1, *task.shape, dtype=self.dtype, device=self.device)
            try:
                outputs = self.module(example).shape[-1]
            except Exception as error:  # a plug-in may raise anything
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                raise ModelError(
                    f"model: {self.settings.model} can't take examples of shape {task.shape}: "
                    f"{reason}; choose another model"
                ) from error
        self.module.train()
        if self.settings.loss == "hinge" and (outputs != 1 or task.classes != 2):
            raise ModelError(
                f"loss = hinge needs two classes and one output, {self.settings.model} has "
                f'{outputs} for {task.classes} classes: use model = linear with {{"outputs": 1}}'
            )
        if self.settings.loss == "cross-entropy" and outputs != task.classes:
            raise ModelError(
                f"loss = cross-entropy needs an output per class, {self.settings.model} has "
                f"{outputs} for {task.classes} classes"
            )


@dataclass(frozen=True)
class Progress:
    """Mean loss and accuracy over the batches of a leg, before each update."""

    loss: float
    accuracy: float


class Trainer:
    """Trains models one after another on one hospital's examples."""

    def __init__(self, network: Network, examples: Examples, streams: Streams) -> None:
        self.network = network
        self._features, self._labels = network.tensors(examples)
        self._streams = streams
        self._spec = optimizer_spec(network.settings)
        self.optimizer_layout = optimizer_state_layout(network)

    def fresh_optimizer(self) -> Arrays:
        """Return the optimiser's state before its first step; empty for plain SGD."""
        return _copies(optimizers.initial_state(self._spec, self.network.parameters))

    def train(
        self,
        first_round: int,
        local_rounds: int,
        optimizer: Arrays,
        anchor: Mapping[str, NDArray[np.generic]] | None,
    ) -> tuple[Arrays, Progress]:
        """Train the loaded network; return the new optimiser state and the progress.

        `anchor` holds FedProx's anchor parameters; `None` disables the proximal term.
        """
        network = self.network
        if network.settings.privacy_unit == "patient":
            raise ModelError("privacy-unit = patient: the plain trainer clips no gradients")
        state = self._tensors(optimizer)
        pull = (
            self._tensors(anchor) if anchor is not None and network.settings.proximal_mu else None
        )
        losses, accuracies = [], []
        gpus = [network.device] if network.device.type == "cuda" else []
        with torch.random.fork_rng(devices=gpus):
            for round_ in range(first_round, first_round + local_rounds):
                loss, accuracy = self._step(round_, state, pull)
                losses.append(loss)
                accuracies.append(accuracy)
        return _copies(state), Progress(float(np.mean(losses)), float(np.mean(accuracies)))

    def _step(
        self, round_: int, state: optimizers.State, pull: dict[str, Tensor] | None
    ) -> tuple[float, float]:
        seed_network(self.network, self._streams.dropout_seed(round_))
        loss, accuracy = local_step(
            self.network, self._spec, round_, self._batch(round_), state, pull
        )
        return float(loss), float(accuracy)

    def _batch(self, round_: int) -> tuple[Tensor, Tensor]:
        size, examples = self.network.settings.batch_size, len(self._labels)
        if not 0 < size < examples:
            return self._features, self._labels
        rows = torch.from_numpy(self._streams.batch(round_, examples, size))
        return self._features[rows], self._labels[rows]

    def _tensors(self, arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, Tensor]:
        device = self.network.device
        return {name: torch.tensor(array, device=device) for name, array in arrays.items()}


def local_step(
    network: Network,
    spec: OptimizerSpec,
    round_: int,
    batch: tuple[Tensor, Tensor],
    state: optimizers.State,
    pull: Mapping[str, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Update the network and the optimiser state in place by one mini-batch.

    Returns the batch's loss and accuracy before the update. Both engines call this function.
    """
    settings = network.settings
    features, labels = batch
    outputs = network.module(features)
    loss = loss_of(settings.loss, outputs, labels)
    gradients = torch.autograd.grad(loss, list(network.parameters.values()))
    named = dict(zip(network.parameters, gradients, strict=True))
    if pull is not None:
        for name, gradient in named.items():
            # ∇ of FedProx's term μ/2‖w − w̄‖², anchored at the last aggregate w̄.
            difference = network.parameters[name].detach() - pull[name]
            named[name] = gradient.add(difference, alpha=settings.proximal_mu)
    optimizers.step(spec, network.parameters, named, state, settings.learning_rate_at(round_))
    exact = torch.float32 if network.device.type == "mps" else torch.float64
    hits = (predictions(outputs.detach()) == labels).to(exact).mean()
    return loss.detach(), hits


def seed_network(network: Network, seed: int) -> None:
    """Seed the random operations inside the network (dropout) for one step."""
    torch.default_generator.manual_seed(seed)
    if network.device.type == "cuda":  # CUDA has a separate generator
        torch.cuda.manual_seed(seed)
    elif network.device.type == "mps":
        torch.mps.manual_seed(seed)


def optimizer_spec(settings: TrainingSettings) -> OptimizerSpec:
    """Return the configured update rule."""
    return OptimizerSpec(
        kind=settings.optimizer,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )


def optimizer_state_layout(network: Network) -> Layout:
    """Return the optimiser's state that travels with a model: names, shapes and types."""
    return _layout(optimizers.initial_state(optimizer_spec(network.settings), network.parameters))


def _copies(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def _layout(tensors: Mapping[str, Tensor]) -> Layout:
    return {
        name: (tuple(tensor.shape), torch.empty(0, dtype=tensor.dtype).numpy().dtype)
        for name, tensor in tensors.items()
    }
