"""The multilayer perceptron of the paper's synthetic data."""

import math
from collections import OrderedDict

from torch import nn

from learning.models.interface import Model, Option, Shape, layer_sizes


def mlp(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> nn.Module:
    """Return linear layers with ReLU between them, on the flattened example."""
    layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    inputs = math.prod(shape)
    for number, size in enumerate(hidden, start=1):
        layers[f"linear{number}"] = nn.Linear(inputs, size)
        layers[f"relu{number}"] = nn.ReLU()
        inputs = size
    layers["output"] = nn.Linear(inputs, classes)
    return nn.Sequential(OrderedDict(layers))


MLP = Model(
    name="mlp",
    options=(
        Option(
            "hidden",
            # "three linear layers of size 100, 50, 20" (app. Network architectures); the output
            # layer, whose size is the number of classes, comes on top.
            default=(100, 50, 20),
            meaning="sizes of the hidden layers, from input to output",
            check=layer_sizes(least=1, most=16),
        ),
    ),
    create=mlp,
)
