"""Users' own models: packages that register under the entry point group `feddc.models`.

A plug-in is a callable `(shape, classes, **options) -> nn.Module`: a function, or a Module class.
It is imported only when its model is built.
"""

import inspect
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from torch import nn

from learning.models.interface import Model, ModelError, Option, Shape
from learning.names import MODEL_PLUG_INS


def load(name: str) -> Model | None:
    """Import the plug-in registered as `name`; None if there is none."""
    entries = tuple(entry_points(group=MODEL_PLUG_INS, name=name))
    if not entries:
        return None
    if len(entries) > 1:
        places = " and ".join(entry.value for entry in entries)
        raise ModelError(f"model: plug-in {name!r} is installed twice: {places}; uninstall one")
    create = _imported(entries[0])
    options, takes_any_option = _declared_options(create)
    return Model(name, options, _guarded(entries[0], create), takes_any_option)


def installed() -> tuple[str, ...]:
    """Return the names of the plug-ins, without importing any."""
    return tuple(sorted({entry.name for entry in entry_points(group=MODEL_PLUG_INS)}))


def _imported(entry: EntryPoint) -> Callable[..., object]:
    # Whatever fails in foreign code, the message must name the plug-in.
    try:
        create: object = entry.load()
    except Exception as error:
        raise _failure(entry, f"could not be imported: {_one_line(error)}") from error
    if not callable(create):
        raise _failure(entry, f"must be a function or a class, but is {type(create).__name__}")
    return create


def _declared_options(create: Callable[..., object]) -> tuple[tuple[Option, ...], bool]:
    """Read the options from the signature: the parameters after shape and classes."""
    try:
        parameters = list(inspect.signature(create).parameters.values())[2:]
    except ValueError:  # written in C, without a signature
        return (), True
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    options = tuple(
        Option(
            parameter.name,
            default=None if parameter.default is parameter.empty else parameter.default,
            meaning="see the plug-in's documentation",
            required=parameter.default is parameter.empty,
        )
        for parameter in parameters
        if parameter.kind not in variable
    )
    return options, any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def _guarded(entry: EntryPoint, create: Callable[..., object]) -> Callable[..., nn.Module]:
    def guarded(shape: Shape, classes: int, /, **options: Any) -> nn.Module:
        try:
            network = create(shape, classes, **options)
        except ModelError:
            raise
        except Exception as error:
            raise _failure(entry, f"failed: {_one_line(error)}") from error
        if not isinstance(network, nn.Module):
            kind = type(network).__name__
            raise _failure(entry, f"must return a torch.nn.Module, but returned {kind}")
        return network

    return guarded


def _failure(entry: EntryPoint, what: str) -> ModelError:
    return ModelError(
        f"model: plug-in {entry.name!r} ({entry.value}) {what}; "
        "fix or uninstall the package, or choose another model"
    )


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
