"""The descriptor: all settings of an experiment, sent once, before the first leg."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Scalar = bool | int | float | str
Init = Literal["shared", "own"]
VERSION = 1


class DescriptorError(ValueError):
    """The bytes are not a descriptor in the agreed form."""


@dataclass(frozen=True)
class Descriptor:
    """What a hospital agrees to before it trains.

    `training` holds the trainer's settings by name (model, optimiser, batch size, learning rate …);
    the hospital checks them itself. `roster` lists the members' names in roster order: a hospital's
    position in it names its random streams. Periods of `None` never come.
    """

    experiment: str
    rounds: int
    daisy_period: int | None
    aggregation_period: int | None
    init: Init
    shape: tuple[int, ...]
    classes: int
    training: Mapping[str, Scalar]
    training_seed: bytes
    roster: tuple[str, ...]

    def to_bytes(self) -> bytes:
        fields = asdict(self) | {"version": VERSION, "training_seed": self.training_seed.hex()}
        # Sorted keys and no white space: equal descriptors are equal bytes.
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> "Descriptor":
        try:
            fields: dict[str, Any] = json.loads(data)
            if fields.pop("version") != VERSION:
                raise ValueError("another version of the descriptor")
            fields["shape"] = tuple(int(size) for size in fields["shape"])
            fields["roster"] = tuple(str(name) for name in fields["roster"])
            fields["training_seed"] = bytes.fromhex(fields["training_seed"])
            descriptor = Descriptor(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DescriptorError(f"not a descriptor: {error}") from error
        if descriptor.init not in get_args(Init):
            raise DescriptorError(f"init must be shared or own, got {descriptor.init!r}")
        return descriptor
