"""What a wrapped strategy remembers from one aggregation to the next: moments, momentum, model.

Flower's strategies keep it in plain attributes. They are saved by name, so that a resumed run's
strategy goes on exactly where the killed one was.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

from protocol.model_bytes import Arrays

_SCALARS = (bool, int, float, str, bytes, type(None))


def check_savable(layers: Sequence[Strategy]) -> None:
    """Refuse, before training, a strategy with an attribute that could not be saved."""
    for layer in layers:
        for name, value in vars(layer).items():
            if not (_is_fixed(value) or _is_arrays(value)):
                raise ValueError(
                    f"{type(layer).__name__}.{name} holds a {type(value).__name__}, which can't be "
                    "saved: a killed run could not be resumed to the same model. Use numbers, "
                    "text or arrays there"
                )


def save(layers: Sequence[Strategy]) -> tuple[dict[str, Any], Arrays]:
    """Return the layers' numbers by name, and their arrays."""
    numbers: dict[str, Any] = {}
    arrays: Arrays = {}
    for depth, layer in enumerate(layers):
        for name, value in vars(layer).items():
            key = f"{depth}.{name}"
            if value is None or isinstance(value, bool | int | float | str):
                numbers[key] = value
            elif _is_arrays(value):
                kind, parts = _parts(value)
                numbers[key] = {"kind": kind, "names": list(parts)}
                arrays |= {f"{key}/{part}": array for part, array in parts.items()}
    return numbers, arrays


def restore(layers: Sequence[Strategy], numbers: Mapping[str, Any], arrays: Arrays) -> None:
    """Give the layers back what `save` returned; functions and wrapped layers stay as they are."""
    for depth, layer in enumerate(layers):
        for name in list(vars(layer)):
            key = f"{depth}.{name}"
            if key not in numbers:
                continue
            saved = numbers[key]
            if isinstance(saved, Mapping):
                parts = {part: arrays[f"{key}/{part}"] for part in saved["names"]}
                setattr(layer, name, _whole(saved["kind"], parts))
            else:
                setattr(layer, name, saved)


def _is_fixed(value: object) -> bool:
    # What a strategy was built with: the program that resumes builds it again.
    return isinstance(value, (*_SCALARS, Strategy)) or callable(value)


def _is_arrays(value: object) -> bool:
    if isinstance(value, ArrayRecord | np.ndarray):
        return True
    if isinstance(value, dict):
        return all(isinstance(k, str) and isinstance(v, np.ndarray) for k, v in value.items())
    return isinstance(value, list) and all(isinstance(entry, np.ndarray) for entry in value)


def _parts(value: Any) -> tuple[str, Arrays]:
    if isinstance(value, ArrayRecord):
        return "record", {name: array.numpy() for name, array in value.items()}
    if isinstance(value, np.ndarray):
        return "array", {"": value}
    if isinstance(value, dict):
        return "dict", value
    return "list", {str(position): array for position, array in enumerate(value)}


def _whole(kind: str, parts: Arrays) -> Any:
    match kind:
        case "record":
            return ArrayRecord({name: Array(np.asarray(array)) for name, array in parts.items()})
        case "array":
            return parts[""]
        case "dict":
            return parts
        case _:
            return list(parts.values())
