"""One linear layer: the model of the paper's SUSY experiment."""

import math
from collections import OrderedDict

from torch import nn

from learning.models.interface import Model, ModelError, Option, Shape


def linear(shape: Shape, classes: int, *, outputs: int) -> nn.Module:
    """Return one linear layer on the flattened example.

    With a single output the score is a margin: positive for class 1, negative for class 0. On
    SUSY's 18 features that makes 18 weights + 1 bias = 19 parameters, and so the Radon number
    19 + 2 = 21 whose square is the paper's 441 clients (h = 2).
    """
    if outputs not in (0, 1, classes):
        raise ModelError(
            f"model-options: outputs of linear must be 0 (one per class), 1 (a margin) or the "
            f"number of classes ({classes}), got {outputs}"
        )
    if outputs == 1 and classes != 2:
        raise ModelError(
            f"model-options: outputs = 1 is a margin between 2 classes, but the data set has "
            f"{classes}; leave outputs out"
        )
    layers: dict[str, nn.Module] = {
        "flatten": nn.Flatten(),
        "output": nn.Linear(math.prod(shape), outputs or classes),
    }
    return nn.Sequential(OrderedDict(layers))


def _whole_number(value: object) -> int:
    if type(value) is not int:
        raise ValueError("must be a whole number")
    return value


LINEAR = Model(
    name="linear",
    options=(
        Option(
            "outputs",
            default=0,
            meaning="0: one score per class; 1: a single margin, for two classes and hinge loss",
            check=_whole_number,
        ),
    ),
    create=linear,
)
