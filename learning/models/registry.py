"""The model registry: find a model by name, check its options, build it."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

import torch
from torch import nn

from learning.models.interface import Model, ModelError, Option, Shape

from . import cnn, cnn_3d, linear, mlp, monai_networks, plug_ins, resnet

_BUILT_IN = {
    model.name: model
    for model in (
        linear.LINEAR,
        mlp.MLP,
        cnn.MNIST_CNN,
        cnn.MRI_CNN,
        resnet.RESNET_SMALL,
        resnet.RESNET18,
        cnn_3d.CNN_3D,
    )
}

_OWN = count(1)


def build(
    name: str, *, shape: Shape, classes: int, options: Mapping[str, object], seed: int
) -> nn.Module:
    """Build a model whose initial weights depend only on `seed`.

    `shape` is one example's shape: (features,), (channels, height, width) or, for volumes,
    (channels, depth, height, width). `options` are the model's hyper-parameters by name; others
    have the defaults listed by `options_of`.
    """
    model = _find(name)
    _check_task(shape, classes)
    values = _checked_options(model, options)
    # Models are built on the CPU, so only its generator must be seeded and restored.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return model.create(shape, classes, **values)


@contextmanager
def registered(create: Callable[[], nn.Module]) -> Iterator[str]:
    """Make a network of one's own available in this process; yield its name.

    `create` returns the network with fresh initial weights, whatever the task is.
    """
    name = f"own-{next(_OWN)}"  # never the same: networks are cached by their names
    _BUILT_IN[name] = Model(name, (), lambda shape, classes: create())
    try:
        yield name
    finally:
        del _BUILT_IN[name]


def count_parameters(
    name: str, *, shape: Shape, classes: int, options: Mapping[str, object]
) -> int:
    """Return how many numbers a model's state has, without allocating them."""
    with torch.device("meta"):
        network = build(name, shape=shape, classes=classes, options=options, seed=0)
    return sum(tensor.numel() for tensor in network.state_dict().values())


def names() -> tuple[str, ...]:
    """Return all model names: the built-in models, then the installed plug-ins."""
    return (*_BUILT_IN, *(name for name in plug_ins.installed() if name not in _BUILT_IN))


def options_of(name: str) -> tuple[Option, ...]:
    """Return the hyper-parameters of the model `name`, with their defaults and meanings."""
    return _find(name).options


def _find(name: str) -> Model:
    # Built-in names take precedence, so that "mlp" is the same network at every hospital.
    model = _BUILT_IN.get(name) or monai_networks.load(name) or plug_ins.load(name)
    if model is None:
        known = names()
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ModelError(f"model must be one of {', '.join(known)}, got {name!r}{hint}")
    return model


def _check_task(shape: Shape, classes: int) -> None:
    if len(shape) not in (1, 3, 4) or min(shape) < 1:
        raise ModelError(
            "model: an example's shape must be (features,), (channels, height, width) or "
            f"(channels, depth, height, width), each at least 1, got {shape}; check the data set"
        )
    if classes < 2:
        raise ModelError(f"model: classes must be at least 2, got {classes}; check the data set")


def _checked_options(model: Model, options: Mapping[str, object]) -> dict[str, object]:
    # A required option has no default; if it is missing, the plug-in raises an error itself.
    values = {option.name: option.default for option in model.options if not option.required}
    checks = {option.name: option.check for option in model.options}
    for name, value in options.items():
        if name not in checks and not model.takes_any_option:
            raise ModelError(
                f"model-options: {name!r} is not an option of {model.name}; {_known(model)}"
            )
        try:
            values[name] = checks[name](value) if name in checks else value
        except ValueError as error:
            raise ModelError(
                f"model-options: {name} {error}, got {value!r}; {_known(model)}"
            ) from None
    return values


def _known(model: Model) -> str:
    if not model.options:
        return f"{model.name} has no options"
    listed = ", ".join(f"{option.name} ({_default(option)})" for option in model.options)
    return f"{model.name} has the options {listed}"


def _default(option: Option) -> str:
    if option.required:
        return "required"
    # Shown as in settings, where sizes are written as lists.
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    return f"default {default!r}"
