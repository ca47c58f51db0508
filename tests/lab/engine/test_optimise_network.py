"""A network is rewritten for speed only where it then computes the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lab.engine.backends.optimise_network import optimise_network
from learning.models import registry
from learning.models.interface import Model
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec

SHAPE = (3, 8, 8)


class _Shared(nn.Module):
    """One ReLU and one pool, each in two places."""

    def __init__(self) -> None:
        super().__init__()
        relu, pool = nn.ReLU(), nn.MaxPool2d(2)
        self.row = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), relu, pool, nn.Conv2d(4, 4, 3, padding=1), relu, pool
        )
        self.output = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.output(self.row(x).flatten(1))
        return y


class _ByIndex(_Shared):
    """Uses its layers by their place in the row."""

    def forward(self, x: Tensor) -> Tensor:
        before_pooling = self.row[1](self.row[0](x))
        y: Tensor = self.output(self.row[2:](before_pooling + before_pooling.mean()).flatten(1))
        return y


class _Named(nn.Sequential):
    """A row with a forward of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return self[1](self[0](x)).mean((2, 3))[:, :2]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Network]:
    def make(create: Callable[[], nn.Module]) -> Network:
        model = Model("of-a-test", (), lambda shape, classes: create())
        monkeypatch.setitem(registry._BUILT_IN, "of-a-test", model)
        settings = TrainingSettings(model="of-a-test")
        return Network(settings, TaskSpec(SHAPE, 2), seed=0)

    return make


def outputs(network: Network) -> Tensor:
    examples = torch.arange(5 * 3 * 8 * 8, dtype=torch.float32).sin().reshape(5, *SHAPE)
    with torch.no_grad():
        found: Tensor = network.module(examples)
    return found


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_layer_that_stands_in_two_places_stays_in_both(network: Any, channels_last: bool) -> None:
    it = network(_Shared)
    expected = outputs(it)
    optimise_network([it], SHAPE, channels_last=channels_last)
    kinds = [type(layer).__name__ for layer in it.module.row._modules.values()]
    assert kinds.count("ReLU") == kinds.count("MaxPool2d") == 2
    assert kinds[1:3] == kinds[4:6] == ["MaxPool2d", "ReLU"]
    torch.testing.assert_close(outputs(it), expected)


@pytest.mark.parametrize(
    "create",
    [_ByIndex, lambda: _Named(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))],
    ids=["layers by index", "a row with a forward of its own"],
)
def test_a_network_that_would_compute_something_else_is_left_alone(
    network: Any, create: Callable[[], nn.Module]
) -> None:
    it = network(create)
    expected, before = outputs(it), str(it.module)
    optimise_network([it], SHAPE, channels_last=False)
    assert str(it.module) == before
    assert torch.equal(outputs(it), expected)


def test_trying_leaves_the_network_as_it_was(network: Any) -> None:
    it = network(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
        )
    )
    buffers = {name: tensor.clone() for name, tensor in it.buffers.items()}
    state = torch.get_rng_state()
    optimise_network([it], SHAPE, channels_last=True)
    for name, tensor in it.buffers.items():
        assert torch.equal(tensor, buffers[name])
    assert torch.equal(torch.get_rng_state(), state)
