"""Stacked networks and steps against the same thing done for each model alone."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from learning import optimizers
from learning.losses import losses_of
from learning.models import registry
from learning.models.interface import Model
from learning.optimizers import OptimizerSpec
from learning.settings import TrainingSettings
from learning.stacked import StackedNetwork
from learning.stacked_layers import NotStackable
from learning.trainer import Network, TaskSpec

MODELS: dict[str, tuple[tuple[int, ...], str]] = {
    "linear": ((5,), "{}"),
    "mlp": ((5,), '{"hidden": [4, 3]}'),
    "mnist-cnn": ((2, 8, 8), '{"filters": [2, 3]}'),
    "mri-cnn": ((3, 9, 8), '{"filters": [2, 3]}'),
    "resnet-small": ((3, 8, 8), "{}"),
    "mri-cnn with groups": ((3, 9, 8), '{"filters": [16, 32], "norm": "group"}'),
    "resnet-small with groups": ((3, 8, 8), '{"norm": "group"}'),
}


def network_of(model: str, shape: tuple[int, ...], options: str = "{}", seed: int = 0) -> Network:
    values = {"model": model, "model-options": options, "precision": "float64"}
    settings = TrainingSettings.parse(values, source="test")
    return Network(settings, TaskSpec(shape, 3), seed=seed)


@pytest.mark.parametrize("model", MODELS)
def test_outputs_gradients_and_buffers_are_each_models_own(model: str) -> None:
    shape, options = MODELS[model]
    networks = [network_of(model.split()[0], shape, options, seed) for seed in range(3)]
    stacked = StackedNetwork(networks[0], shape)
    parameters, buffers = (
        {
            name: torch.stack([getattr(network, part)[name].detach() for network in networks])
            for name in getattr(networks[0], part)
        }
        for part in ("parameters", "buffers")
    )
    for tensor in parameters.values():
        tensor.requires_grad_()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 4, *shape, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (3, 4), generator=generator)
    stacked.load(parameters, buffers)

    outputs = stacked(x)
    losses = losses_of("cross-entropy", outputs, y, None)
    gradients = torch.autograd.grad(losses.sum(), list(parameters.values()))

    for number, network in enumerate(networks):
        alone = network.module(x[number])
        loss = nn.functional.cross_entropy(alone, y[number])
        torch.testing.assert_close(outputs[number], alone)
        torch.testing.assert_close(losses[number], loss)
        own = torch.autograd.grad(loss, list(network.parameters.values()))
        for together, each in zip(gradients, own, strict=True):
            torch.testing.assert_close(together[number], each)
        for name, buffer in network.buffers.items():
            torch.testing.assert_close(buffers[name][number], buffer)


def test_padding_counts_nothing() -> None:
    outputs = torch.randn(2, 3, 4, dtype=torch.float64)
    labels = torch.tensor([[0, 1, 2], [3, 0, 0]])
    weights = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [1, 0, 0]], dtype=torch.float64)
    losses = losses_of("cross-entropy", outputs, labels, weights)
    torch.testing.assert_close(losses[0], nn.functional.cross_entropy(outputs[0], labels[0]))
    torch.testing.assert_close(
        losses[1], nn.functional.cross_entropy(outputs[1, :1], labels[1, :1])
    )


class _Reshapes(nn.Module):
    """Its layers are known, but its own forward looks at the shape."""

    def __init__(self, shape: Any, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x - x.mean(0))  # over the examples, but in a stack over the models


class _OwnParameter(_Reshapes):
    def __init__(self, shape: Any, classes: int) -> None:
        super().__init__(shape, classes)
        self.scale = nn.Parameter(torch.ones(()))


class _Shared(nn.Module):
    def __init__(self, shape: Any, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(shape[0], shape[0])
        self.again = self.first
        self.output = nn.Linear(shape[0], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.again(self.first(x)))


class _WithDropout(nn.Sequential):
    def __init__(self, shape: Any, classes: int) -> None:
        super().__init__(nn.Linear(shape[0], classes), nn.Dropout())


@pytest.mark.parametrize("create", [_Reshapes, _OwnParameter, _Shared, _WithDropout])
def test_what_can_not_be_stacked_says_so(monkeypatch: pytest.MonkeyPatch, create: Any) -> None:
    monkeypatch.setitem(registry._BUILT_IN, "plug-in", Model("plug-in", (), create))
    network = network_of("plug-in", (4,))
    before = copy.deepcopy(network.module.state_dict())
    with pytest.raises(NotStackable):
        StackedNetwork(network, (4,))
    for name, tensor in network.module.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_adam_on_a_stack_gives_each_model_its_own_bias_correction() -> None:
    spec = OptimizerSpec("adam", weight_decay=0.01)
    alone = [{"w": torch.randn(4, dtype=torch.float64)} for _ in range(3)]
    states = [optimizers.initial_state(spec, one) for one in alone]
    together = {"w": torch.stack([one["w"] for one in alone])}
    state = optimizers.initial_state(spec, together, stacked=True)
    for round_ in range(6):
        active = 3 if round_ > 2 else 2  # the third begins later, so that steps differ
        gradient = torch.randn(3, 4, dtype=torch.float64)
        part = {"w": together["w"][:active]}
        part_state = {name: tensor[:active] for name, tensor in state.items()}
        optimizers.step(spec, part, {"w": gradient[:active]}, part_state, 0.1)
        for number in range(active):
            one = {"w": gradient[number]}
            optimizers.step(spec, alone[number], one, states[number], 0.1)
    assert state["step"].tolist() == [6, 6, 3]
    for number in range(3):
        torch.testing.assert_close(together["w"][number], alone[number]["w"])
