"""An experiment's keys: their written formats, and that all members derive the same one."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.sealing import envelope
from protocol.sealing.envelope import Context
from protocol.sealing.keys import Identity, SealingKey
from protocol.sealing.membership import (
    KEY_SHARE_BYTES,
    Announced,
    MembershipError,
    announce,
    check_announcements,
    confirmation,
    derive_member_key,
    generation_digest,
    open_key_shares,
)
from protocol.study.roster import Roster
from tests.protocol.three_members import (
    EAST,
    EXPERIMENT,
    GENERATION,
    HOSPITALS,
    LIST,
    NAMES,
    NORTH,
    OTHER_ROSTER,
    ROSTER,
    WEST,
    carried,
    pair_secret,
    prefixed,
)

VECTORS = json.loads(
    (Path(__file__).parent / "vectors/membership.json").read_text(encoding="utf-8")
)

# The formats, written a second time, from docs/envelope.md only.


def written_generation(
    experiment: bytes, roster: bytes, announced: list[tuple[bytes, bytes]]
) -> bytes:
    data = b"FedDC generation v1" + hashlib.sha256(roster).digest() + prefixed(experiment)
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


def test_the_generation_digest_is_what_is_written() -> None:
    announced = [(one.name.encode(), one.sealing_key + one.signature) for one in LIST]
    assert written_generation(b"e1", ROSTER.content, announced) == GENERATION


def test_a_sealed_share_holds_the_share_and_its_signature() -> None:
    sealed = EAST.seal_key_shares(LIST)
    assert set(sealed) == {"North", "West"}
    opened = envelope.open(
        sealed["North"],
        context=Context("e1", GENERATION, 0, "North"),
        key=NORTH.key,
        member_key=b"",
    )
    key = Ed25519PublicKey.from_public_bytes(EAST.identity.public)
    content = EAST.share + pair_secret("East", "North")
    statement = prefixed(b"East", b"North", b"e1", GENERATION, content)
    key.verify(opened[65:], b"FedDC key share v1\x00" + statement)
    assert opened[:65] == content


def test_the_member_key_is_hkdf_of_the_shares_in_roster_order() -> None:
    shares = {hospital.name: hospital.share for hospital in reversed(HOSPITALS)}
    expected = written_hkdf(
        EAST.share + NORTH.share + WEST.share,
        salt=hashlib.sha256(ROSTER.content).digest(),
        info=b"FedDC member key v1" + GENERATION,
    )
    assert derive_member_key(shares, roster=ROSTER, generation=GENERATION) == expected


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
    generation = generation_digest(announcements, experiment=experiment, roster=roster)
    written = [(m["name"].encode(), bytes.fromhex(m["announcement"])) for m in members]
    assert generation.hex() == VECTORS["generation_digest"]
    assert generation == written_generation(experiment.encode(), content, written)
    for me, key in zip(members, keys, strict=True):
        name = me["name"]
        sealed = {
            m["name"]: bytes.fromhex(m["sealed_key_shares"][name]) for m in members if m is not me
        }
        opened = open_key_shares(
            sealed, key, name=name, experiment=experiment, generation=generation, roster=roster
        )
        assert {sender: share.pair_secret.hex() for sender, share in opened.items()} == {
            m["name"]: m["pair_secrets"][name] for m in members if m is not me
        }
        shares = {sender: share.key_share for sender, share in opened.items()}
        assert shares == {m["name"]: bytes.fromhex(m["key_share"]) for m in members if m is not me}
        shares[name] = bytes.fromhex(me["key_share"])
        member_key = derive_member_key(shares, roster=roster, generation=generation)
        assert member_key.hex() == VECTORS["member_key"]
        assert confirmation(member_key).hex() == VECTORS["confirmation"]
    secret = b"".join(bytes.fromhex(m["key_share"]) for m in members)
    salt = hashlib.sha256(content).digest()
    assert written_hkdf(secret, salt, b"FedDC member key v1" + generation) == member_key


def test_all_members_derive_the_same_key_and_can_seal_for_each_other() -> None:
    brought = carried()
    keys = {h.name: h.member_key(brought[h.name], GENERATION) for h in HOSPITALS}
    assert len(set(keys.values())) == 1
    context = Context(EXPERIMENT, GENERATION, 1, "West")
    sealed = envelope.seal(
        b"model", context=context, recipient_key=WEST.key.public, member_key=keys["East"]
    )
    opened = envelope.open(sealed, context=context, key=WEST.key, member_key=keys["West"])
    assert opened == b"model"


def test_one_unknown_share_is_enough_to_keep_the_key_secret() -> None:
    """All but one tell the coordinator their shares: one wrong bit of the last is useless."""
    shares = {hospital.name: hospital.share for hospital in HOSPITALS}
    key = derive_member_key(shares, roster=ROSTER, generation=GENERATION)
    for name in NAMES:
        last_bit = bytes([*shares[name][:-1], shares[name][-1] ^ 1])
        assert (
            derive_member_key(shares | {name: last_bit}, roster=ROSTER, generation=GENERATION)
            != key
        )


def test_the_member_key_depends_on_roster_generation_and_whose_share_is_whose() -> None:
    shares = {hospital.name: hospital.share for hospital in HOSPITALS}
    exchanged = shares | {"East": WEST.share, "West": EAST.share}
    keys = {
        derive_member_key(shares, roster=ROSTER, generation=GENERATION),
        derive_member_key(shares, roster=OTHER_ROSTER, generation=GENERATION),
        derive_member_key(shares, roster=ROSTER, generation=bytes(32)),
        derive_member_key(exchanged, roster=ROSTER, generation=GENERATION),
    }
    assert len(keys) == 4
    assert {len(key) for key in keys} == {envelope.MEMBER_KEY_BYTES}


@given(st.lists(st.binary(min_size=30, max_size=34), min_size=3, max_size=3))
@settings(deadline=None)
def test_shares_cannot_flow_into_each_other(parts: list[bytes]) -> None:
    shares = dict(zip(NAMES, parts, strict=True))
    if all(len(part) == KEY_SHARE_BYTES for part in parts):
        assert derive_member_key(shares, roster=ROSTER, generation=GENERATION)
    else:
        with pytest.raises(MembershipError, match="a key share has 32 bytes"):
            derive_member_key(shares, roster=ROSTER, generation=GENERATION)


def test_the_member_key_needs_a_share_of_everybody() -> None:
    shares = {hospital.name: hospital.share for hospital in HOSPITALS}
    for wrong in ({}, {"East": EAST.share}, shares | {"Zurich": bytes(32)}):
        with pytest.raises(MembershipError, match="one key share of every member"):
            derive_member_key(wrong, roster=ROSTER, generation=GENERATION)
