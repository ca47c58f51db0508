"""Three members of a study with their secrets, who make the keys of an experiment."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from protocol.sealing.keys import Identity, SealingKey
from protocol.sealing.membership import (
    Announced,
    MembershipError,
    announce,
    check_announcements,
    derive_member_key,
    generation_digest,
    open_key_shares,
    seal_key_shares,
)
from protocol.study.roster import Member, Roster

EXPERIMENT = "e1"
NAMES = ("East", "North", "West")
COORDINATOR = Identity.generate()


@dataclass
class Hospital:
    """One member with its secrets, doing what an agent does."""

    name: str
    identity: Identity = field(default_factory=Identity.generate)
    key: SealingKey = field(default_factory=SealingKey.generate)
    share: bytes = b""

    def announce(self, experiment: str = EXPERIMENT, roster: Roster | None = None) -> Announced:
        return announce(
            self.identity,
            self.key,
            name=self.name,
            experiment=experiment,
            roster=roster or ROSTER,
        )

    def seal_key_shares(
        self, announcements: Sequence[Announced], experiment: str = EXPERIMENT
    ) -> dict[str, bytes]:
        check_announcements(announcements, experiment=experiment, roster=ROSTER)
        return seal_key_shares(
            self.share,
            {announced.name: pair_secret(self.name, announced.name) for announced in announcements},
            self.identity,
            name=self.name,
            experiment=experiment,
            generation=generation_digest(announcements, experiment=experiment, roster=ROSTER),
            announcements=announcements,
        )

    def open_key_shares(
        self, sealed: dict[str, bytes], generation: bytes, experiment: str = EXPERIMENT
    ) -> dict[str, bytes]:
        """Return the key shares alone; the pair secrets must be what their senders drew."""
        opened = open_key_shares(
            sealed,
            self.key,
            name=self.name,
            experiment=experiment,
            generation=generation,
            roster=ROSTER,
        )
        for sender, share in opened.items():
            assert share.pair_secret == pair_secret(sender, self.name)
        return {sender: share.key_share for sender, share in opened.items()}

    def member_key(self, sealed: dict[str, bytes], generation: bytes) -> bytes:
        shares = self.open_key_shares(sealed, generation) | {self.name: self.share}
        return derive_member_key(shares, roster=ROSTER, generation=generation)


def pair_secret(sender: str, recipient: str) -> bytes:
    """What one member seals for another besides its key share: a pair seed, and a byte."""
    return hashlib.sha256(f"{sender} for {recipient}".encode()).digest() + b"\3"


EAST, NORTH, WEST = HOSPITALS = [
    Hospital(name, share=hashlib.sha256(name.encode()).digest()) for name in NAMES
]
IDENTITIES = {hospital.name: hospital.identity for hospital in HOSPITALS}
KEYS = {hospital.name: hospital.key for hospital in HOSPITALS}
ROSTER = Roster.make(
    "Study", 1, COORDINATOR.public, [Member(h.name, h.identity.public) for h in HOSPITALS]
)
OTHER_ROSTER = Roster.make("Study", 2, COORDINATOR.public, list(ROSTER.members))
LIST = [hospital.announce() for hospital in HOSPITALS]
GENERATION = generation_digest(LIST, experiment=EXPERIMENT, roster=ROSTER)


def carried(announcements: Sequence[Announced] = LIST) -> dict[str, dict[str, bytes]]:
    """What an honest coordinator brings to each hospital: the others' sealed shares, by sender."""
    sealed = {hospital.name: hospital.seal_key_shares(announcements) for hospital in HOSPITALS}
    return {to: {sender: sealed[sender][to] for sender in NAMES if sender != to} for to in NAMES}


def refused(announcements: Sequence[Announced], match: str) -> None:
    with pytest.raises(MembershipError, match=match):
        check_announcements(announcements, experiment=EXPERIMENT, roster=ROSTER)


def prefixed(*parts: bytes) -> bytes:
    """Write parts as docs/envelope.md says, without the help of the code under test."""
    return b"".join(bytes([0, 0, len(part) >> 8, len(part) & 255]) + part for part in parts)
