"""Convolutions with gradients of their own have torch's outputs and gradients."""

import copy

import pytest
import torch
from torch import nn

from lab.engine.convolution import _LargeConv2d, faster_gradients


@pytest.mark.parametrize("channels", [3, 16], ids=["first layer", "many channels"])
@pytest.mark.parametrize(
    "layer",
    [
        {"padding": 1},
        {"bias": False},
        {"stride": 2, "padding": (2, 0)},
        {"dilation": (2, 1), "padding": 2},
    ],
    ids=str,
)
def test_gradients_are_torchs(channels: int, layer: dict[str, object]) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(channels, 5, kernel_size=3, dtype=torch.float64, **layer)  # type: ignore[arg-type]
    faster = copy.deepcopy(plain)
    faster_gradients(faster)
    assert type(faster) is _LargeConv2d
    shape = (2, channels, 66, 64)
    results = []
    for network in (plain, faster.to(memory_format=torch.channels_last)):
        images = torch.arange(2 * channels * 66 * 64, dtype=torch.float64).sin().reshape(shape)
        images = images.contiguous(memory_format=torch.channels_last).requires_grad_()
        outputs = network(images)
        (outputs * outputs.detach().cos()).sum().backward()
        results.append([outputs, images.grad, *(p.grad for p in network.parameters())])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 4, 3, padding="same"),
    ],
    ids=["groups", "reflecting", "named padding"],
)
def test_others_are_left_alone(layer: nn.Conv2d) -> None:
    faster_gradients(layer)
    assert type(layer) is nn.Conv2d
