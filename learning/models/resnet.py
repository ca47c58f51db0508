"""Residual networks: the small one of the paper's CIFAR10 experiments, and ResNet18."""

from collections import OrderedDict
from functools import partial

import torch
from torch import nn

from learning.models.interface import (
    NORM,
    Model,
    Option,
    Shape,
    image_shape,
    layer_sizes,
    norm_layer,
)


def resnet_small(shape: Shape, classes: int, *, filters: tuple[int, ...], norm: str) -> nn.Module:
    """Return a residual network of three stages, by default with 16, 32 and 64 filters.

    The text says three blocks (app. Averaging round experiment); the experiment's 175 818 trainable
    parameters are those of ResNet18's two basic blocks per stage, with a bias in every convolution
    and BatchNorm after every one, shortcuts included. For CIFAR10, weights + biases + BatchNorm:

        stem       3·16·9 + 16 + 32                                          =     480
        stage 16   4 · (16·16·9 + 16 + 32)                                   =   9 408
        stage 32   (16·32·9 + 96) + 3 · (32·32·9 + 96) + (16·32 + 96)        =  33 248
        stage 64   (32·64·9 + 192) + 3 · (64·64·9 + 192) + (32·64 + 192)     = 132 032
        linear     64·10 + 10                                                =     650
    """
    # Two halvings must leave 2×2 pixels: BatchNorm has no variance of a single value.
    channels, _, _ = image_shape("resnet-small", shape, smallest=8)
    first, second, third = filters
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(channels, first, kernel_size=3, padding=1),
        "norm": norm_layer(norm, first),
        "relu": nn.ReLU(),
        "stage1": _stage(first, first, norm=norm),
        "stage2": _stage(first, second, stride=2, norm=norm),
        "stage3": _stage(second, third, stride=2, norm=norm),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "output": nn.Linear(third, classes),
    }
    return _initialised(nn.Sequential(OrderedDict(layers)))


def resnet18(shape: Shape, classes: int, *, norm: str) -> nn.Module:
    """Return torchvision's ResNet18, its first convolution fitted to the image's channels."""
    # Five halvings of fewer than 32 pixels would leave none.
    channels, _, _ = image_shape("resnet18", shape, smallest=32)
    # Imported here because torchvision is slow to import and other models do not need it.
    from torchvision.models import resnet18 as torchvision_resnet18

    network: nn.Module = torchvision_resnet18(
        weights=None, num_classes=classes, norm_layer=partial(norm_layer, norm)
    )
    if channels != 3:
        network.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
    return _initialised(network)


def _stage(inputs: int, outputs: int, *, stride: int = 1, norm: str) -> nn.Module:
    return nn.Sequential(
        _BasicBlock(inputs, outputs, stride=stride, norm=norm),
        _BasicBlock(outputs, outputs, norm=norm),
    )


class _BasicBlock(nn.Module):
    """Two convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1)
        self.norm1 = norm_layer(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1)
        self.norm2 = norm_layer(norm, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride),
                norm_layer(norm, outputs),
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm1(self.conv1(images)))
        return torch.relu(self.norm2(self.conv2(hidden)) + self.shortcut(images))


def _initialised(network: nn.Module) -> nn.Module:
    # "weights are initialized by a Kaiming Normal and biases are zero-initialized"
    # (app. CIFAR10 & Pneumonia); BatchNorm starts as the identity, as torch makes it.
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network


RESNET_SMALL = Model(
    name="resnet-small",
    options=(
        Option(
            "filters",
            default=(16, 32, 64),
            meaning="filters of the three stages",
            check=layer_sizes(least=3, most=3),
        ),
        NORM,
    ),
    create=resnet_small,
)
RESNET18 = Model(name="resnet18", options=(NORM,), create=resnet18)
