"""The descriptor: all settings of an experiment, sent once before the first leg."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter

from .canonical import canonical_json, read_canonical
from .messages import ExperimentId, Name

Scalar = bool | int | float | str
Init = Literal["shared", "own"]

# Limited because hospitals store descriptors.
MAX_BYTES = 256 * 1024
_Positive = Annotated[int, Field(ge=1, lt=2**53)]
# More than any data set has, and few enough that output weights fit into memory.
_Classes = Annotated[int, Field(ge=0, le=2**16)]
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class DescriptorError(ValueError):
    """The bytes are not a valid descriptor."""


class Descriptor(BaseModel):
    """What a hospital agrees to before it trains.

    `training` holds the trainer's settings by name (model, optimiser, batch size, learning rate …);
    the hospital validates them. `roster` is the digest of the roster that must be pinned there; a
    hospital's position in it names its random streams. A period of `None` means never.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_bytes="hex", val_json_bytes="hex"
    )

    version: Literal[1] = 1
    experiment: ExperimentId
    rounds: _Positive
    daisy_period: _Positive | None
    aggregation_period: _Positive | None
    init: Init
    shape: tuple[_Positive, ...]
    classes: _Classes
    training: Mapping[Name, bool | _Whole | FiniteFloat | str]
    training_seed: Annotated[bytes, Field(min_length=1, max_length=64, repr=False)]
    sealed: bool
    roster: Annotated[bytes, Field(min_length=32, max_length=32)]

    def to_bytes(self) -> bytes:
        return canonical_json(self)

    @staticmethod
    def from_bytes(data: bytes) -> "Descriptor":
        if len(data) > MAX_BYTES:
            raise DescriptorError(f"a descriptor has at most {MAX_BYTES} bytes, got {len(data)}")
        try:
            return read_canonical(_DESCRIPTOR, data)
        except ValueError as error:
            raise DescriptorError(f"not a descriptor: {error}") from error


_DESCRIPTOR = TypeAdapter(Descriptor)
