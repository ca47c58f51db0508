"""The descriptor: all settings of an experiment, sent once before the first leg."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, model_validator

from .canonical import canonical_json, read_canonical
from .messages import ExperimentId, Name
from .randomness import SEED_BYTES
from .schedule import Schedule

Scalar = bool | int | float | str
Init = Literal["shared", "own"]
Averaging = Literal["secure", "plain"]
# What a hospital can check about an aggregate of secure sums: that it is the members' mean, or only
# that all hospitals got the same one, where the strategy takes a step of its own from the mean.
Aggregate = Literal["verified", "same"]

# Limited because hospitals store descriptors.
MAX_BYTES = 256 * 1024
_Positive = Annotated[int, Field(ge=1, lt=2**53)]
# More than any data set has, and few enough that output weights fit into memory.
_Classes = Annotated[int, Field(ge=0, le=2**16)]
_Digest = Annotated[bytes, Field(min_length=32, max_length=32)]
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class DescriptorError(ValueError):
    """The bytes are not a valid descriptor."""


class Descriptor(BaseModel):
    """What a hospital agrees to before it trains.

    `training` holds the trainer's settings by name (model, optimiser, batch size, learning rate …);
    the hospital validates them. `roster` is the digest of the roster that must be pinned there; a
    hospital's position in it names its random streams. A period of `None` means never.

    The schedule is complete: a hospital derives from it how each leg ends and which rounds it has,
    and serves nothing else. Of a random schedule only the commitment to its seed is known until the
    experiment closes. Where hospitals share the first model, `first_model` is its digest. They
    build it from the training seed, unless it is given: then the first requests carry it.

    `codebook` is the digest of the study's codebook, if it has one, pinned like the roster.

    With secure `averaging` the coordinator learns only sums of models, `weighted` by the hospitals'
    examples, which stay secret, or not. No sum is of fewer than `minimum_cohort` models.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_bytes="hex", val_json_bytes="hex"
    )

    version: Literal[2] = 2
    experiment: ExperimentId
    rounds: _Positive
    daisy_period: _Positive | None
    aggregation_period: _Positive | None
    schedule_commitment: _Digest | None = None
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    init: Init
    first_model: _Digest | None = None
    first_model_is_given: bool = False
    shape: tuple[_Positive, ...]
    classes: _Classes
    training: Mapping[Name, bool | _Whole | FiniteFloat | str]
    training_seed: Annotated[bytes, Field(min_length=1, max_length=64, repr=False)]
    sealed: bool
    averaging: Averaging = "plain"
    weighted: bool = False
    aggregate: Aggregate = "verified"
    minimum_cohort: Annotated[int, Field(ge=2, lt=2**16)] = 2
    codebook: _Digest | None = None
    roster: _Digest

    @model_validator(mode="after")
    def _is_consistent(self) -> "Descriptor":
        if (self.first_model is None) != (self.init == "own"):
            raise ValueError("a shared first model has a digest, models of their own have none")
        if self.first_model_is_given and self.first_model is None:
            raise ValueError("a first model that is given is shared")
        if self.averaging == "secure" and not (self.sealed and self.fraction == 1):
            raise ValueError("secure averaging needs sealed hand-overs and fraction 1")
        self.schedule(bytes(SEED_BYTES))  # refuses what no schedule can be
        return self

    def schedule(self, seed: bytes | None = None) -> Schedule:
        """Return the schedule; of a random one without its `seed`, only where its legs are.

        Every leg but the last of such a schedule seems to end in a hand-over then.
        """
        is_random = self.schedule_commitment is not None
        return Schedule(
            self.rounds,
            self.daisy_period,
            None if is_random and seed is None else self.aggregation_period,
            secret=seed if is_random else None,
        )

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
