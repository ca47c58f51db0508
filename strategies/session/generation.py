"""The present generation of an experiment: its members, what they agreed to, and their keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from protocol.descriptor import Descriptor, Scalar
from protocol.model_bytes import Wire
from protocol.secure_sum.secure_leg import SecureLeg, threshold
from strategies.identifiers import HospitalName

from .members import Members

Examples = Mapping[HospitalName, int | None]  # how many each hospital has, if it discloses that


@dataclass(frozen=True)
class Generation:
    """What is the same for all legs of a generation; `digest` is that of its keys.

    `publishing` are the members whose own figures may be handed out; known when it begins.
    """

    members: Members
    descriptor: Descriptor
    examples: Examples
    digest: bytes
    publishing: tuple[HospitalName, ...] = ()

    @property
    def is_secure(self) -> bool:
        """Whether aggregations are secure sums."""
        return self.descriptor.averaging == "secure"

    @property
    def sends_sums(self) -> bool:
        """Whether hospitals are sent sums, which they can check, and not the aggregates."""
        return self.is_secure and self.descriptor.aggregate == "verified"

    @property
    def threshold(self) -> int:
        """The fewest models in a secure sum."""
        return threshold(len(self.members), self.descriptor.minimum_cohort)

    @property
    def wire(self) -> Wire:
        """The number format in which models travel."""
        return wire_of(self.descriptor.training)

    def secure_leg(self, number: int, cohort: tuple[str, ...]) -> SecureLeg:
        name = self.descriptor.experiment
        return SecureLeg(name, self.digest, number, cohort, self.threshold)


def wire_of(training: Mapping[str, Scalar]) -> Wire:
    """Return the number format of the trainer's settings."""
    wire: Any = training.get("wire-dtype", "same")
    if wire not in get_args(Wire):
        raise ValueError(f"wire-dtype must be one of {', '.join(get_args(Wire))}, got {wire!r}")
    return cast(Wire, wire)
