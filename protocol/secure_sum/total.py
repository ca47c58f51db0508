"""A sum as requests carry it, with its tag, and the name by which members compare aggregates."""

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar

from protocol.canonical import prefixed
from protocol.sealing.bundle import BundleError, from_bundle, to_bundle
from protocol.sealing.keys import Identity, verify

from .secure_leg import SecureLeg, SecureSumError
from .seeds import tag_seed
from .tag import check_tag
from .vector import Mean, VectorForm

_VOUCHER = "aggregate"


@dataclass(frozen=True)
class Total:
    """The sum of the survivors' vectors in one leg."""

    leg: int
    members: int  # of the generation, on which the vectors' form depends
    cohort: tuple[str, ...]
    survivors: tuple[str, ...]
    vector: memoryview = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return leg, members, the cohort's length and bundle (who survived), then the vector."""
        cohort = {n: b"\1" if n in self.survivors else b"\0" for n in self.cohort}
        numbers = self.leg.to_bytes(8, "big") + self.members.to_bytes(4, "big")
        return b"".join((numbers, prefixed(to_bundle(cohort)), self.vector))

    @staticmethod
    def from_bytes(data: bytes) -> "Total":
        end = 16 + int.from_bytes(data[12:16], "big")
        try:
            cohort = from_bundle(data[16:end])
        except BundleError as error:
            raise SecureSumError(str(error)) from error
        members = int.from_bytes(data[8:12], "big")
        if len(data) < end or members < 2 or not set(cohort.values()) <= {b"\0", b"\1"}:
            raise SecureSumError("not a sum")
        survivors = tuple(name for name, flag in cohort.items() if flag == b"\1")
        leg = int.from_bytes(data[:8], "big")
        return Total(leg, members, tuple(cohort), survivors, memoryview(data)[end:])

    def mean(self, form: VectorForm) -> Mean:
        """Return the mean that the sum stands for; refuse an implausible sum."""
        return form.decode(form.from_bytes(self.vector), len(self.survivors))

    def check(self, leg: SecureLeg, form: VectorForm, member_key: bytes, members: int) -> None:
        """Refuse a sum that is not one of this leg, in a generation of so many members."""
        if (leg.leg, leg.cohort) != (self.leg, self.cohort):
            raise SecureSumError("the sum is of another leg or cohort")
        if self.members != members:
            raise SecureSumError("the sum is of a generation with more or fewer members")
        leg.check_survivors(self.survivors)
        check_tag(form.from_bytes(self.vector), tag_seed(member_key, leg))


@dataclass(frozen=True)
class LastAggregate:
    """The leg that an aggregate is of, 0 for none, and the digest of what requests carry."""

    leg: int = 0
    digest: bytes = bytes(32)

    BYTES: ClassVar[int] = 40

    @staticmethod
    def of(leg: int, payload: bytes) -> "LastAggregate":
        return LastAggregate(leg, hashlib.sha256(payload).digest())

    def to_bytes(self) -> bytes:
        return self.leg.to_bytes(8, "big") + self.digest

    @staticmethod
    def from_bytes(data: bytes) -> "LastAggregate":
        return LastAggregate(int.from_bytes(data[:8], "big"), data[8 : LastAggregate.BYTES])

    def voucher(self, identity: Identity, experiment: str) -> bytes:
        """Sign that this aggregate was checked, for members of a later generation."""
        return identity.sign(_VOUCHER, self._about(experiment))

    def is_vouched_by(self, identity: bytes, experiment: str, signature: bytes) -> bool:
        return verify(identity, _VOUCHER, self._about(experiment), signature)

    def _about(self, experiment: str) -> bytes:
        return prefixed(experiment.encode()) + self.to_bytes()
