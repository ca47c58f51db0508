"""An experiment's keys: all members derive the same one; a coordinator that cheats gets none."""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import envelope
from protocol.envelope import Context, EnvelopeError
from protocol.keys import SEALING_KEY_BYTES, Identity, SealingKey
from protocol.membership import (
    SHARE_BYTES,
    Announced,
    MembershipError,
    announce,
    check_announcements,
    confirmation,
    derive_member_key,
    epoch_digest,
    open_shares,
    seal_shares,
)
from protocol.roster import Member, Roster

VECTORS = json.loads(
    (Path(__file__).parent / "vectors/membership.json").read_text(encoding="utf-8")
)
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

    def seal_shares(
        self, announcements: Sequence[Announced], experiment: str = EXPERIMENT
    ) -> dict[str, bytes]:
        check_announcements(announcements, experiment=experiment, roster=ROSTER)
        return seal_shares(
            self.share,
            self.identity,
            name=self.name,
            experiment=experiment,
            epoch=epoch_digest(announcements, experiment=experiment, roster=ROSTER),
            announcements=announcements,
        )

    def open_shares(
        self, sealed: dict[str, bytes], epoch: bytes, experiment: str = EXPERIMENT
    ) -> dict[str, bytes]:
        return open_shares(
            sealed, self.key, name=self.name, experiment=experiment, epoch=epoch, roster=ROSTER
        )

    def member_key(self, sealed: dict[str, bytes], epoch: bytes) -> bytes:
        shares = self.open_shares(sealed, epoch) | {self.name: self.share}
        return derive_member_key(shares, roster=ROSTER, epoch=epoch)


EAST, NORTH, WEST = HOSPITALS = [
    Hospital(name, share=hashlib.sha256(name.encode()).digest()) for name in NAMES
]
ROSTER = Roster.make(
    "Study", 1, COORDINATOR.public, [Member(h.name, h.identity.public) for h in HOSPITALS]
)
OTHER_ROSTER = Roster.make("Study", 2, COORDINATOR.public, list(ROSTER.members))
LIST = [hospital.announce() for hospital in HOSPITALS]
EPOCH = epoch_digest(LIST, experiment=EXPERIMENT, roster=ROSTER)


def carried(announcements: Sequence[Announced] = LIST) -> dict[str, dict[str, bytes]]:
    """What an honest coordinator brings to each hospital: the others' sealed shares, by sender."""
    sealed = {hospital.name: hospital.seal_shares(announcements) for hospital in HOSPITALS}
    return {to: {sender: sealed[sender][to] for sender in NAMES if sender != to} for to in NAMES}


def refused(announcements: Sequence[Announced], match: str) -> None:
    with pytest.raises(MembershipError, match=match):
        check_announcements(announcements, experiment=EXPERIMENT, roster=ROSTER)


# The formats, written a second time, from docs/envelope.md only.


def prefixed(*parts: bytes) -> bytes:
    return b"".join(bytes([0, 0, len(part) >> 8, len(part) & 255]) + part for part in parts)


def written_epoch(experiment: bytes, roster: bytes, announced: list[tuple[bytes, bytes]]) -> bytes:
    data = b"FedDC epoch v1" + hashlib.sha256(roster).digest() + prefixed(experiment)
    return hashlib.sha256(data + b"".join(prefixed(*one) for one in announced)).digest()


def written_hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, for one block of output."""
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def test_an_announcement_verifies_with_the_raw_key_over_the_written_statement() -> None:
    data = EAST.announce().to_bytes()
    statement = prefixed(b"East", b"e1", hashlib.sha256(ROSTER.content).digest(), data[:1216])
    key = Ed25519PublicKey.from_public_bytes(EAST.identity.public)
    key.verify(data[1216:], b"FedDC announcement v1\x00" + statement)
    assert data[:1216] == EAST.key.public
    assert len(data) == 1280


def test_the_epoch_digest_is_what_is_written() -> None:
    announced = [(one.name.encode(), one.sealing_key + one.signature) for one in LIST]
    assert written_epoch(b"e1", ROSTER.content, announced) == EPOCH


def test_a_sealed_share_holds_the_share_and_its_signature() -> None:
    sealed = EAST.seal_shares(LIST)
    assert set(sealed) == {"North", "West"}
    opened = envelope.open(
        sealed["North"], context=Context("e1", EPOCH, 0, "North"), key=NORTH.key, member_key=b""
    )
    key = Ed25519PublicKey.from_public_bytes(EAST.identity.public)
    statement = prefixed(b"East", b"e1", EPOCH, EAST.share)
    key.verify(opened[32:], b"FedDC share v1\x00" + statement)
    assert opened[:32] == EAST.share


def test_the_member_key_is_hkdf_of_the_shares_in_roster_order() -> None:
    shares = {hospital.name: hospital.share for hospital in reversed(HOSPITALS)}
    expected = written_hkdf(
        EAST.share + NORTH.share + WEST.share,
        salt=hashlib.sha256(ROSTER.content).digest(),
        info=b"FedDC member key v1" + EPOCH,
    )
    assert derive_member_key(shares, roster=ROSTER, epoch=EPOCH) == expected


def test_the_confirmation_is_an_hmac_that_no_envelope_uses() -> None:
    key = bytes(range(32))
    tag = hmac.digest(key, b"FedDC member key confirmation v1", "sha256")
    assert confirmation(key) == tag
    assert not b"FedDC member key confirmation v1".startswith(b"FedDC envelope v1")


def test_vector_of_a_tiny_study() -> None:
    content = VECTORS["roster"].encode()
    roster, experiment = Roster.from_content(content), VECTORS["experiment"]
    members: list[dict[str, Any]] = VECTORS["members"]
    identities = [Identity.from_bytes(bytes.fromhex(m["identity_seed"])) for m in members]
    keys = [SealingKey.from_bytes(bytes.fromhex(m["sealing_key"])) for m in members]
    announcements = [
        Announced.from_bytes(m["name"], bytes.fromhex(m["announcement"])) for m in members
    ]
    check_announcements(announcements, experiment=experiment, roster=roster)
    for one, identity, key in zip(announcements, identities, keys, strict=True):
        made = announce(identity, key, name=one.name, experiment=experiment, roster=roster)
        assert made == one
    epoch = epoch_digest(announcements, experiment=experiment, roster=roster)
    written = [(m["name"].encode(), bytes.fromhex(m["announcement"])) for m in members]
    assert epoch.hex() == VECTORS["epoch_digest"]
    assert epoch == written_epoch(experiment.encode(), content, written)
    for me, key in zip(members, keys, strict=True):
        name = me["name"]
        sealed = {
            m["name"]: bytes.fromhex(m["sealed_shares"][name]) for m in members if m is not me
        }
        shares = open_shares(
            sealed, key, name=name, experiment=experiment, epoch=epoch, roster=roster
        )
        assert shares == {m["name"]: bytes.fromhex(m["share"]) for m in members if m is not me}
        shares[name] = bytes.fromhex(me["share"])
        member_key = derive_member_key(shares, roster=roster, epoch=epoch)
        assert member_key.hex() == VECTORS["member_key"]
        assert confirmation(member_key).hex() == VECTORS["confirmation"]
    secret = b"".join(bytes.fromhex(m["share"]) for m in members)
    salt = hashlib.sha256(content).digest()
    assert written_hkdf(secret, salt, b"FedDC member key v1" + epoch) == member_key


def test_all_members_derive_the_same_key_and_can_seal_for_each_other() -> None:
    brought = carried()
    keys = {h.name: h.member_key(brought[h.name], EPOCH) for h in HOSPITALS}
    assert len(set(keys.values())) == 1
    context = Context(EXPERIMENT, EPOCH, 1, "West")
    sealed = envelope.seal(
        b"model", context=context, recipient_key=WEST.key.public, member_key=keys["East"]
    )
    opened = envelope.open(sealed, context=context, key=WEST.key, member_key=keys["West"])
    assert opened == b"model"


# A coordinator that cheats with announcements


def test_different_lists_for_two_hospitals_lead_to_different_keys_and_nothing_opens() -> None:
    """West announced twice (a retry, say); the coordinator shows one key to each side."""
    second = replace(WEST, key=SealingKey.generate())
    other_list = [*LIST[:2], second.announce()]
    other_epoch = epoch_digest(other_list, experiment=EXPERIMENT, roster=ROSTER)
    check_announcements(other_list, experiment=EXPERIMENT, roster=ROSTER)
    assert other_epoch != EPOCH
    to_north = EAST.seal_shares(LIST)["North"]
    with pytest.raises(MembershipError, match="does not open"):
        NORTH.open_shares(
            {"East": to_north, "West": second.seal_shares(other_list)["North"]}, other_epoch
        )
    shares = {h.name: h.share for h in HOSPITALS}
    east_key = derive_member_key(shares, roster=ROSTER, epoch=EPOCH)
    north_key = derive_member_key(shares, roster=ROSTER, epoch=other_epoch)
    assert east_key != north_key
    sealed = envelope.seal(
        b"model",
        context=Context(EXPERIMENT, EPOCH, 1, "North"),
        recipient_key=NORTH.key.public,
        member_key=east_key,
    )
    for epoch, member_key in (
        (EPOCH, north_key),
        (other_epoch, east_key),
        (other_epoch, north_key),
    ):
        with pytest.raises(EnvelopeError):
            envelope.open(
                sealed,
                context=Context(EXPERIMENT, epoch, 1, "North"),
                key=NORTH.key,
                member_key=member_key,
            )


def test_the_coordinator_cannot_put_its_own_key_into_the_list() -> None:
    own = SealingKey.generate()
    swapped = [
        replace(LIST[1], sealing_key=own.public),
        announce(COORDINATOR, own, name="North", experiment=EXPERIMENT, roster=ROSTER),
        replace(
            announce(COORDINATOR, own, name="Coordinator", experiment=EXPERIMENT, roster=ROSTER),
            name="North",
        ),
    ]
    for announced in swapped:
        refused([LIST[0], announced, LIST[2]], "North did not sign")


def test_half_a_key_cannot_be_swapped_either() -> None:
    own = SealingKey.generate().public
    for mixed in (own[:1184] + LIST[1].sealing_key[1184:], LIST[1].sealing_key[:1184] + own[1184:]):
        refused([LIST[0], replace(LIST[1], sealing_key=mixed), LIST[2]], "North did not sign")


def test_a_key_signed_by_somebody_who_is_no_member_is_refused() -> None:
    stranger = Hospital("North")
    refused([LIST[0], stranger.announce(), LIST[2]], "North did not sign")


def test_a_member_cannot_announce_in_anothers_name() -> None:
    as_north = announce(
        WEST.identity, SealingKey.generate(), name="North", experiment=EXPERIMENT, roster=ROSTER
    )
    refused([LIST[0], as_north, LIST[2]], "North did not sign")
    refused([LIST[0], replace(LIST[2], name="North"), LIST[2]], "same key|North did not sign")


def test_an_announcement_of_another_experiment_or_roster_is_refused() -> None:
    refused([LIST[0], NORTH.announce(experiment="e2"), LIST[2]], "North did not sign")
    refused([LIST[0], NORTH.announce(roster=OTHER_ROSTER), LIST[2]], "North did not sign")
    with pytest.raises(MembershipError, match="East did not sign"):
        check_announcements(LIST, experiment="e2", roster=ROSTER)
    with pytest.raises(MembershipError, match="East did not sign"):
        check_announcements(LIST, experiment=EXPERIMENT, roster=OTHER_ROSTER)


def test_a_signature_for_another_purpose_is_refused() -> None:
    statement = prefixed(b"North", b"e1", ROSTER.digest, NORTH.key.public)
    for purpose in ("share", "roster", "Announcement"):
        signature = NORTH.identity.sign(purpose, statement)
        refused([LIST[0], replace(LIST[1], signature=signature), LIST[2]], "North did not sign")


def test_two_members_with_the_same_key_are_refused() -> None:
    copied = announce(NORTH.identity, EAST.key, name="North", experiment=EXPERIMENT, roster=ROSTER)
    refused([LIST[0], copied, LIST[2]], "same key")


@pytest.mark.parametrize(
    "positions",
    [(), (0,), (0, 1), (0, 2), (1, 2), (1, 0, 2), (2, 1, 0), (0, 1, 2, 2), (0, 0, 1, 2), (0, 1, 1)],
    ids=str,
)
def test_a_list_that_is_not_each_member_once_in_order_is_refused(
    positions: tuple[int, ...],
) -> None:
    refused([LIST[position] for position in positions], "not of the roster's members")


def test_an_announcement_too_many_is_refused() -> None:
    refused([*LIST, Hospital("Zurich").announce()], "not of the roster's members")


def test_a_member_that_announces_something_that_is_no_key_is_refused() -> None:
    for key in (b"", b"x", bytes(SEALING_KEY_BYTES), b"\xff" * SEALING_KEY_BYTES):
        statement = prefixed(b"North", b"e1", ROSTER.digest, key)
        announced = Announced("North", key, NORTH.identity.sign("announcement", statement))
        refused([LIST[0], announced, LIST[2]], "North: ")


def test_a_member_cannot_stop_the_others_with_a_key_they_cannot_seal_for() -> None:
    """An X25519 point of small order, properly signed: found out before anybody seals."""
    key = NORTH.key.public[:-32] + bytes(32)
    signature = NORTH.identity.sign("announcement", prefixed(b"North", b"e1", ROSTER.digest, key))
    refused([LIST[0], Announced("North", key, signature), LIST[2]], "North: not an announced key")


@pytest.mark.parametrize("length", [0, 64, 1216, 1279, 1281])
def test_an_announcement_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(MembershipError, match=f"North: an announcement of {length} bytes"):
        Announced.from_bytes("North", bytes(length))


def test_an_announcement_survives_being_written_and_read() -> None:
    assert Announced.from_bytes("North", LIST[1].to_bytes()) == LIST[1]


def test_everything_in_the_list_changes_the_epoch() -> None:
    different = {
        epoch_digest(LIST, experiment="e2", roster=ROSTER),
        epoch_digest(LIST, experiment=EXPERIMENT, roster=OTHER_ROSTER),
        epoch_digest(LIST[:2], experiment=EXPERIMENT, roster=ROSTER),
        epoch_digest(LIST[::-1], experiment=EXPERIMENT, roster=ROSTER),
        epoch_digest(
            [replace(LIST[0], name="Eas"), *LIST[1:]], experiment=EXPERIMENT, roster=ROSTER
        ),
        epoch_digest(
            [replace(LIST[0], signature=bytes(64)), *LIST[1:]], experiment=EXPERIMENT, roster=ROSTER
        ),
        epoch_digest(
            [replace(LIST[0], sealing_key=bytes(1216)), *LIST[1:]],
            experiment=EXPERIMENT,
            roster=ROSTER,
        ),
    }
    assert len(different | {EPOCH}) == 8


# A coordinator or a member that cheats with shares


def test_a_share_that_the_coordinator_made_is_refused() -> None:
    """It can seal for anybody, but it cannot sign."""
    context = Context(EXPERIMENT, EPOCH, 0, "North")
    share = bytes(32)
    statement = prefixed(b"East", b"e1", EPOCH, share)
    for payload in (
        share + COORDINATOR.sign("share", statement),
        share + bytes(64),
        share,
        b"",
        share + EAST.identity.sign("share", prefixed(b"East", b"e1", EPOCH, EAST.share)),
        share + EAST.identity.sign("announcement", statement),
    ):
        forged = envelope.seal(
            payload, context=context, recipient_key=NORTH.key.public, member_key=b""
        )
        brought = carried()["North"] | {"East": forged}
        with pytest.raises(MembershipError, match="East did not sign its share"):
            NORTH.open_shares(brought, EPOCH)


def test_a_share_encrypted_again_by_the_coordinator_does_not_open() -> None:
    """It cannot read the one it carries, so all it can do is to wrap that one again."""
    brought = carried()["North"]
    wrapped = envelope.seal(
        brought["East"],
        context=Context(EXPERIMENT, EPOCH, 0, "North"),
        recipient_key=NORTH.key.public,
        member_key=b"",
    )
    with pytest.raises(MembershipError, match="East did not sign its share"):
        NORTH.open_shares(brought | {"East": wrapped}, EPOCH)


def test_one_members_share_is_not_anothers() -> None:
    brought = carried()["North"]
    exchanged = {"East": brought["West"], "West": brought["East"]}
    with pytest.raises(MembershipError, match="did not sign its share"):
        NORTH.open_shares(exchanged, EPOCH)


def test_a_member_cannot_pass_on_a_share_as_its_own() -> None:
    """West has East's signed share, and seals it as if it came from West."""
    signature = EAST.identity.sign("share", prefixed(b"East", b"e1", EPOCH, EAST.share))
    copied = envelope.seal(
        EAST.share + signature,
        context=Context(EXPERIMENT, EPOCH, 0, "North"),
        recipient_key=NORTH.key.public,
        member_key=b"",
    )
    with pytest.raises(MembershipError, match="West did not sign its share"):
        NORTH.open_shares(carried()["North"] | {"West": copied}, EPOCH)


def test_a_share_sealed_for_another_member_does_not_open() -> None:
    brought = carried()
    with pytest.raises(MembershipError, match="the share of East does not open"):
        NORTH.open_shares(brought["North"] | {"East": brought["West"]["East"]}, EPOCH)


def test_a_share_of_another_experiment_is_refused() -> None:
    other_list = [hospital.announce("e2") for hospital in HOSPITALS]
    other_epoch = epoch_digest(other_list, experiment="e2", roster=ROSTER)
    other = EAST.seal_shares(other_list, "e2")["North"]
    with pytest.raises(MembershipError, match="the share of East does not open"):
        NORTH.open_shares(carried()["North"] | {"East": other}, EPOCH)
    # Sealed anew for this experiment by somebody who could read it, the signature gives it away.
    signature = EAST.identity.sign("share", prefixed(b"East", b"e2", other_epoch, EAST.share))
    moved = envelope.seal(
        EAST.share + signature,
        context=Context(EXPERIMENT, EPOCH, 0, "North"),
        recipient_key=NORTH.key.public,
        member_key=b"",
    )
    with pytest.raises(MembershipError, match="East did not sign its share"):
        NORTH.open_shares(carried()["North"] | {"East": moved}, EPOCH)


def test_shares_of_an_earlier_epoch_are_refused() -> None:
    """The same experiment with new keys: nothing of the old set-up opens."""
    before = carried()["North"]
    renewed = [replace(hospital, key=SealingKey.generate()) for hospital in HOSPITALS]
    new_list = [hospital.announce() for hospital in renewed]
    new_epoch = epoch_digest(new_list, experiment=EXPERIMENT, roster=ROSTER)
    with pytest.raises(MembershipError, match="does not open"):
        renewed[1].open_shares(before, new_epoch)
    # Not even if North had kept its key and only the others had renewed theirs.
    with pytest.raises(MembershipError, match="does not open"):
        NORTH.open_shares(before, new_epoch)


def test_a_share_missing_too_many_or_unknown_is_refused() -> None:
    brought = carried()["North"]
    for wrong in (
        {},
        {"East": brought["East"]},
        brought | {"North": brought["East"]},
        brought | {"Coordinator": brought["East"]},
        {"East": brought["East"], "west": brought["West"]},
    ):
        with pytest.raises(MembershipError, match="one share of every other member"):
            NORTH.open_shares(wrong, EPOCH)


def test_a_share_of_another_length_is_refused_even_when_signed() -> None:
    for share in (b"", bytes(31), bytes(33), bytes(64)):
        statement = prefixed(b"East", b"e1", EPOCH, share)
        sealed = envelope.seal(
            share + EAST.identity.sign("share", statement),
            context=Context(EXPERIMENT, EPOCH, 0, "North"),
            recipient_key=NORTH.key.public,
            member_key=b"",
        )
        with pytest.raises(MembershipError, match="East did not sign its share"):
            NORTH.open_shares(carried()["North"] | {"East": sealed}, EPOCH)
        with pytest.raises(MembershipError, match=f"32 bytes, got {len(share)}"):
            replace(EAST, share=share).seal_shares(LIST)


def test_a_member_that_gives_different_shares_only_keeps_the_others_from_working() -> None:
    """Availability, not secrecy: keys differ, confirmations show it, nothing opens."""
    brought = carried()
    two_faced = replace(EAST, share=bytes(32))
    brought["West"]["East"] = two_faced.seal_shares(LIST)["West"]
    north = NORTH.member_key(brought["North"], EPOCH)
    west = WEST.member_key(brought["West"], EPOCH)
    assert north != west
    assert confirmation(north) != confirmation(west)
    context = Context(EXPERIMENT, EPOCH, 1, "West")
    sealed = envelope.seal(
        b"model", context=context, recipient_key=WEST.key.public, member_key=north
    )
    with pytest.raises(EnvelopeError):
        envelope.open(sealed, context=context, key=WEST.key, member_key=west)


def test_one_unknown_share_is_enough_to_keep_the_key_secret() -> None:
    """All but one tell the coordinator their shares: one wrong bit of the last is useless."""
    shares = {hospital.name: hospital.share for hospital in HOSPITALS}
    key = derive_member_key(shares, roster=ROSTER, epoch=EPOCH)
    for name in NAMES:
        last_bit = bytes([*shares[name][:-1], shares[name][-1] ^ 1])
        assert derive_member_key(shares | {name: last_bit}, roster=ROSTER, epoch=EPOCH) != key


def test_the_member_key_depends_on_roster_epoch_and_whose_share_is_whose() -> None:
    shares = {hospital.name: hospital.share for hospital in HOSPITALS}
    exchanged = shares | {"East": WEST.share, "West": EAST.share}
    keys = {
        derive_member_key(shares, roster=ROSTER, epoch=EPOCH),
        derive_member_key(shares, roster=OTHER_ROSTER, epoch=EPOCH),
        derive_member_key(shares, roster=ROSTER, epoch=bytes(32)),
        derive_member_key(exchanged, roster=ROSTER, epoch=EPOCH),
    }
    assert len(keys) == 4
    assert {len(key) for key in keys} == {envelope.MEMBER_KEY_BYTES}


@given(st.lists(st.binary(min_size=30, max_size=34), min_size=3, max_size=3))
@settings(deadline=None)
def test_shares_cannot_flow_into_each_other(parts: list[bytes]) -> None:
    shares = dict(zip(NAMES, parts, strict=True))
    if all(len(part) == SHARE_BYTES for part in parts):
        assert derive_member_key(shares, roster=ROSTER, epoch=EPOCH)
    else:
        with pytest.raises(MembershipError, match="a share has 32 bytes"):
            derive_member_key(shares, roster=ROSTER, epoch=EPOCH)


def test_the_member_key_needs_a_share_of_everybody() -> None:
    shares = {hospital.name: hospital.share for hospital in HOSPITALS}
    for wrong in ({}, {"East": EAST.share}, shares | {"Zurich": bytes(32)}):
        with pytest.raises(MembershipError, match="one share of every member"):
            derive_member_key(wrong, roster=ROSTER, epoch=EPOCH)
