"""Convolutions with gradients of their own have torch's outputs and gradients."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from lab.engine.backends.convolution import ChannelsLastConv2d, faster_gradients


@pytest.mark.parametrize("filters", [5, 64], ids=["few filters", "by patches"])
@pytest.mark.parametrize(
    "layer",
    [
        {"padding": 1},
        {"bias": False},
        {"stride": 2, "padding": (2, 0)},
        {"dilation": (2, 1), "padding": 2},
        {"kernel_size": (2, 5), "stride": (1, 3), "padding": (0, 4)},
    ],
    ids=str,
)
def test_gradients_are_torchs(filters: int, layer: dict[str, Any]) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(3, filters, **({"kernel_size": 3} | layer), dtype=torch.float64)
    faster = copy.deepcopy(plain)
    faster_gradients(faster)
    assert type(faster) is ChannelsLastConv2d
    shape = (8, 3, 66, 100)  # more than are unfolded at a time
    results = []
    for network in (plain, faster.to(memory_format=torch.channels_last)):
        images = torch.arange(8 * 3 * 66 * 100, dtype=torch.float64).sin().reshape(shape)
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
