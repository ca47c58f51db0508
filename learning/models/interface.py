"""What a model is to the register: a name, options and a function that creates the network."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

Shape = tuple[int, ...]

# Takes an option's value and returns it as the network wants it; a ValueError says what it must be.
Check = Callable[[object], object]

# Far above what small data sets can train: it stops a slip of the finger, or a coordinator's
# descriptor, from filling a hospital's memory.
_LARGEST_LAYER = 4096


class ModelError(ValueError):
    """A model can't be built as asked; one line that names the setting and says what to do."""


def anything(value: object) -> object:
    """Accept the value as it is: a plug-in checks its own options."""
    return value


@dataclass(frozen=True)
class Option:
    """A hyper-parameter of a model, as documentation and `--help` show it.

    Only plug-ins have `required` ones; their default means nothing.
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
    """Check for a list of layer sizes; the network gets a tuple."""
    count = str(least) if least == most else f"{least} to {most}"
    demand = f"must be a list of {count} whole numbers from 1 to {_LARGEST_LAYER}"

    def check(value: object) -> tuple[int, ...]:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            raise ValueError(demand)
        # `type`, not isinstance: true is no size.
        if not all(type(size) is int and 1 <= size <= _LARGEST_LAYER for size in value):
            raise ValueError(demand)
        return tuple(value)

    return check


def image_shape(model: str, shape: Shape, *, smallest: int) -> tuple[int, int, int]:
    """Return (channels, height, width), or say why `model` can't take examples of this shape."""
    if len(shape) != 3:
        raise ModelError(
            f"model: {model} needs images (channels, height, width), got examples of shape "
            f"{shape}; choose linear or mlp for flat features"
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise ModelError(
            f"model: {model} needs images of at least {smallest}×{smallest} pixels, got shape "
            f"{shape}; enlarge the images or choose another model, such as mlp"
        )
    return channels, height, width
