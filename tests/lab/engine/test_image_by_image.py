"""Layers that are computed image by image give what they give one after the other."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lab.engine.backends.convolution import faster_gradients
from lab.engine.backends.image_by_image import _Block, _Joined, image_by_image

SHAPE = (6, 3, 65, 88)
FILTERS = 32  # 6 · 65 · 88 · 32 numbers: too many for the cache


def network(pool: dict[str, Any], convolution: dict[str, Any]) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, FILTERS, kernel_size=3, **convolution),
        nn.BatchNorm2d(FILTERS, momentum=0.3),
        nn.MaxPool2d(**({"kernel_size": 2} | pool)),
        nn.ReLU(),
    )
    with torch.no_grad():
        layers[1].weight.uniform_(0.2, 2)
        layers[1].bias.normal_()
    return layers.double().to(memory_format=torch.channels_last)


def joined(layers: nn.Sequential) -> nn.Sequential:
    twin = copy.deepcopy(layers)
    faster_gradients(twin)
    image_by_image(twin)
    return twin


def images() -> Tensor:
    numbers = torch.arange(torch.Size(SHAPE).numel(), dtype=torch.float64)
    plain = (numbers * 0.7).sin().reshape(SHAPE) + torch.arange(6.0).reshape(-1, 1, 1, 1)
    return plain.contiguous(memory_format=torch.channels_last)


def one_step(layers: nn.Sequential) -> list[Tensor]:
    x = images().requires_grad_()
    y = layers(x)
    (y * y.detach().cos()).sum().backward()
    gradients = [p.grad for p in layers.parameters()]
    return [y, x.grad, *gradients, *layers.buffers()]  # type: ignore[list-item]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    inside: Callable[..., Tensor] = _Joined.forward

    def counted(ctx: Any, *arguments: Any) -> Tensor:
        made.append(1)
        return inside(ctx, *arguments)

    monkeypatch.setattr(_Joined, "forward", staticmethod(counted))
    return made


@pytest.mark.parametrize(
    ("pool", "convolution"),
    [
        ({}, {"padding": 1}),
        ({"kernel_size": 3, "stride": 2, "padding": 1}, {"bias": False}),
        ({"kernel_size": (2, 3), "dilation": (1, 2)}, {"dilation": 2, "padding": 2}),
    ],
    ids=str,
)
def test_outputs_gradients_and_running_statistics_are_the_same(
    calls: list[int], pool: dict[str, Any], convolution: dict[str, Any]
) -> None:
    plain = network(pool, convolution)
    twin = joined(plain)
    assert [type(layer) for layer in twin] == [_Block, nn.ReLU]
    for found, expected in zip(one_step(twin), one_step(plain), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert calls == [1]


def test_without_a_gradient_to_the_images_the_rest_is_the_same() -> None:
    plain = network({}, {"padding": 1})
    results = []
    for layers in (plain, joined(plain)):
        layers(images()).square().sum().backward()
        results.append([p.grad for p in layers.parameters()])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def turned_around(layers: nn.Sequential) -> None:
    with torch.no_grad():
        layers[1].weight[3] = -1


def not_finite(layers: nn.Sequential) -> None:
    with torch.no_grad():
        layers[1].weight[3] = torch.nan


@pytest.mark.parametrize(
    "change",
    [turned_around, not_finite, nn.Module.eval],
    ids=["a negative weight", "not finite", "eval mode"],
)
def test_what_can_not_be_joined_goes_layer_by_layer(
    calls: list[int], change: Callable[[nn.Sequential], object]
) -> None:
    plain = network({}, {"padding": 1})
    change(plain)
    for found, expected in zip(one_step(joined(plain)), one_step(plain), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, equal_nan=True)
    assert calls == []


class _Standardised(nn.Conv2d):
    """A convolution with a forward of its own."""


def watched() -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(4)
    norm.register_forward_hook(lambda *_: None)
    return norm


@pytest.mark.parametrize(
    "layers",
    [
        [_Standardised(4, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2)],
        [nn.Conv2d(4, 4, 3), watched(), nn.MaxPool2d(2)],
        [nn.Conv2d(4, 4, 3, groups=2), nn.BatchNorm2d(4), nn.MaxPool2d(2)],
        [nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.MaxPool2d(2)],
        [nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, affine=False), nn.MaxPool2d(2)],
        [nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2, ceil_mode=True)],
    ],
    ids=[
        "own forward",
        "a hook",
        "groups",
        "cumulative average",
        "no weights",
        "a layer between",
        "rounded up",
    ],
)
def test_others_are_left_alone(layers: list[nn.Module]) -> None:
    network = nn.Sequential(*layers)
    image_by_image(network)
    assert list(network) == layers
