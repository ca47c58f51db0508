"""The roster: the members of a study, agreed outside the system and pinned at every hospital."""

import base64
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.canonical import canonical_bytes, first_problem
from protocol.sealing.keys import IDENTITY_BYTES, SIGNATURE_BYTES, Identity, is_identity, verify

from .names import MemberName, StudyName, twin_key

_PURPOSE = "roster"
DEFAULT_MINIMUM = 3  # members that a hospital's policy requires unless its operator changes it
MAX_MEMBERS = 1_000  # each seals a key share for every other: a million in all
MAX_BYTES = 500_000
_Identity = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * IDENTITY_BYTES}}}$")]


class RosterError(ValueError):
    """The bytes are not a valid roster, or not signed by the coordinator it names."""


@dataclass(frozen=True)
class Member:
    """A hospital: its name and its public identity."""

    name: str
    identity: bytes

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.identity)


@dataclass(frozen=True)
class Roster:
    """The coordinator and the members, sorted by name; `generation` numbers its versions."""

    study: str
    generation: int
    coordinator: bytes
    members: tuple[Member, ...]

    @cached_property
    def content(self) -> bytes:
        """The roster in canonical form, which is signed, fingerprinted and pinned."""
        return canonical_bytes(
            {
                "version": 1,
                "study": self.study,
                "generation": self.generation,
                "coordinator": self.coordinator.hex(),
                "members": [
                    {"name": member.name, "identity": member.identity.hex()}
                    for member in self.members
                ],
            }
        )

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.content).digest()

    @property
    def fingerprint(self) -> str:
        """160 bits of the digest in eight groups, which can be read out over a telephone."""
        return fingerprint(self.content)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def identity_of(self, name: str) -> bytes | None:
        """Return a member's public identity, or None if the name is not on the roster."""
        return self._identities.get(name)

    @cached_property
    def _identities(self) -> dict[str, bytes]:
        return {member.name: member.identity for member in self.members}

    def signed(self, coordinator: Identity) -> bytes:
        """Return the roster as the coordinator distributes it: content, then signature."""
        if coordinator.public != self.coordinator:
            raise RosterError("only the coordinator that the roster names can sign it")
        return self.content + coordinator.sign(_PURPOSE, self.content)

    @staticmethod
    def from_signed(data: bytes) -> "Roster":
        """Parse a roster and verify its signature; raise RosterError if either fails."""
        content, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        roster = Roster.from_content(content)
        if not verify(roster.coordinator, _PURPOSE, content, signature):
            raise RosterError("not signed by the coordinator it names")
        return roster

    @staticmethod
    def from_content(content: bytes) -> "Roster":
        if len(content) > MAX_BYTES:
            raise RosterError(f"a roster has at most {MAX_BYTES} bytes, got {len(content)}")
        try:
            form = _Form.model_validate_json(content)
        except ValidationError as error:
            raise RosterError(first_problem(error, whole="roster")) from error
        members = tuple(Member(m.name, bytes.fromhex(m.identity)) for m in form.members)
        roster = Roster(form.study, form.generation, bytes.fromhex(form.coordinator), members)
        if roster.content != content:
            raise RosterError("not in canonical form")
        roster._check()
        return roster

    @staticmethod
    def make(study: str, generation: int, coordinator: bytes, members: list[Member]) -> "Roster":
        """Make a roster of these members, in any order; raise RosterError if it is invalid."""
        ordered = tuple(sorted(members, key=lambda member: member.name))
        return Roster.from_content(Roster(study, generation, coordinator, ordered).content)

    def _check(self) -> None:
        if list(self.names) != sorted(set(self.names)):
            raise RosterError("members must have different names and be sorted by them")
        if len(set(map(twin_key, self.names))) != len(self.names):
            raise RosterError("two members' names differ only in capitals, spaces or punctuation")
        identities = [self.coordinator, *(member.identity for member in self.members)]
        if len(set(identities)) != len(identities):
            raise RosterError("two members, or a member and the coordinator, share an identity")
        if not all(is_identity(identity) for identity in identities):
            raise RosterError("an identity is a small-order (forgeable) public key")


def fingerprint(data: bytes) -> str:
    """Return 160 bits of SHA-256 in Base32 (A–Z, 2–7), eight groups of four."""
    text = base64.b32encode(hashlib.sha256(data).digest()[:20]).decode()
    return " ".join(text[start : start + 4] for start in range(0, len(text), 4))


class _Strict(BaseModel):
    # Unknown fields are refused as not canonical: naming them would let senders write to the log.
    model_config = ConfigDict(extra="ignore", strict=True)


class _MemberForm(_Strict):
    name: MemberName
    identity: _Identity


class _Form(_Strict):
    version: Literal[1]
    study: StudyName
    generation: Annotated[int, Field(ge=1, lt=2**31)]
    coordinator: _Identity
    members: Annotated[list[_MemberForm], Field(min_length=2, max_length=MAX_MEMBERS)]
