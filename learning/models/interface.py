"""A model in the registry: a name, options, and a function that creates the network."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

Shape = tuple[int, ...]

# Returns an option's value as the network takes it, or raises a ValueError with the requirement.
Check = Callable[[object], object]

# Far above what small data sets can train. It keeps a typing error, or a malicious descriptor, from
# filling a hospital's memory.
_LARGEST_LAYER = 4096


class ModelError(ValueError):
    """A model can't be built; the message names the setting and says what to do."""


def anything(value: object) -> object:
    """Accept any value: a plug-in checks its own options."""
    return value


@dataclass(frozen=True)
class Option:
    """A hyper-parameter of a model, as shown in documentation and `--help`.

    Only plug-ins have `required` options; their default is ignored.
    """

    name: str
    default: object
    meaning: str
    check: Check = anything
    required: bool = False


@dataclass(frozen=True)
class Model:
    """A model that can be built by name.

    `create(shape, classes, **options)` gets every option, checked, with defaults filled in.
    """

    name: str
    options: tuple[Option, ...]
    create: Callable[..., nn.Module]
    takes_any_option: bool = False


def layer_sizes(*, least: int, most: int) -> Check:
    """Return a check for a list of layer sizes, which it converts to a tuple."""
    count = str(least) if least == most else f"{least} to {most}"
    demand = f"must be a list of {count} whole numbers from 1 to {_LARGEST_LAYER}"

    def check(value: object) -> tuple[int, ...]:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            raise ValueError(demand)
        # `type` instead of isinstance: `True` is not a size.
        if not all(type(size) is int and 1 <= size <= _LARGEST_LAYER for size in value):
            raise ValueError(demand)
        return tuple(value)

    return check


# Channels of a group, if the number of channels allows it (Wu & He 2018 use 32 groups of 2 to 16).
_GROUP = 16


def norm_layer(kind: str, channels: int) -> nn.Module:
    """Return a normalisation of the channels of an image: `batch` or `group`.

    GroupNorm normalises each image by itself: it mixes no patients and has no running statistics.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(math.gcd(channels, max(1, channels // _GROUP)), channels)


def _norm_kind(value: object) -> object:
    if value not in ("batch", "group"):
        raise ValueError('must be "batch" or "group"')
    return value


NORM = Option(
    "norm",
    default="batch",
    meaning="normalisation layers: batch, or group, which differential privacy needs",
    check=_norm_kind,
)


def image_shape(model: str, shape: Shape, *, smallest: int) -> tuple[int, int, int]:
    """Return (channels, height, width); raise a ModelError if `model` can't take this shape."""
    if len(shape) != 3:
        raise ModelError(
            f"model: {model} needs images (channels, height, width), got examples of shape "
            f"{shape}; choose linear or mlp for flat features, cnn-3d for volumes"
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise ModelError(
            f"model: {model} needs images of at least {smallest}×{smallest} pixels, got shape "
            f"{shape}; enlarge the images or choose another model, such as mlp"
        )
    return channels, height, width
