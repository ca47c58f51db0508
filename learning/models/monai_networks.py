"""Networks of MONAI for slices and volumes, where the extra `monai` is installed.

A closed list: a name in a descriptor must not choose any class of a foreign package.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from learning.extras import install
from learning.models.interface import Model, ModelError, Shape

PREFIX = "monai:"
_SMALLEST = 32


def load(name: str) -> Model | None:
    """Return the network of that name; None if it is not on the list."""
    create = _NETWORKS.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    return Model(name, (), partial(_create, name, create)) if create else None


def names() -> tuple[str, ...]:
    """Return the names of the list."""
    return tuple(f"{PREFIX}{name}" for name in _NETWORKS)


def _create(name: str, create: Callable[..., Any], shape: Shape, classes: int) -> nn.Module:
    if len(shape) not in (3, 4) or min(shape[1:]) < _SMALLEST:
        raise ModelError(
            f"model: {name} needs images or volumes of at least {_SMALLEST} pixels a side, got "
            f"examples of shape {shape}"
        )
    try:
        from monai.networks import nets
    except ImportError as error:
        raise ModelError(f"model: {name} needs the package monai: {install('monai')}") from error
    network: nn.Module = create(nets, len(shape) - 1, shape[0], classes)
    return network


def _densenet121(nets: Any, dimensions: int, channels: int, classes: int) -> Any:
    return nets.DenseNet121(spatial_dims=dimensions, in_channels=channels, out_channels=classes)


def _resnet18(nets: Any, dimensions: int, channels: int, classes: int) -> Any:
    return nets.resnet18(
        pretrained=False, spatial_dims=dimensions, n_input_channels=channels, num_classes=classes
    )


_NETWORKS: dict[str, Callable[..., Any]] = {"densenet121": _densenet121, "resnet18": _resnet18}
