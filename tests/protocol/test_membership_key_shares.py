"""An experiment's keys: shares that were made up, altered or passed on are refused."""

from dataclasses import replace

import pytest

from protocol.sealing import envelope
from protocol.sealing.envelope import Context, EnvelopeError
from protocol.sealing.keys import SealingKey
from protocol.sealing.membership import MembershipError, confirmation, generation_digest
from tests.protocol.three_members import (
    COORDINATOR,
    EAST,
    EXPERIMENT,
    GENERATION,
    HOSPITALS,
    LIST,
    NORTH,
    ROSTER,
    WEST,
    carried,
    prefixed,
)


def test_a_share_that_the_coordinator_made_is_refused() -> None:
    """It can seal for anybody, but it cannot sign."""
    context = Context(EXPERIMENT, GENERATION, 0, "North")
    share = bytes(32)
    statement = prefixed(b"East", b"e1", GENERATION, share)
    for payload in (
        share + COORDINATOR.sign("key share", statement),
        share + bytes(64),
        share,
        b"",
        share + EAST.identity.sign("key share", prefixed(b"East", b"e1", GENERATION, EAST.share)),
        share + EAST.identity.sign("announcement", statement),
    ):
        forged = envelope.seal(
            payload, context=context, recipient_key=NORTH.key.public, member_key=b""
        )
        brought = carried()["North"] | {"East": forged}
        with pytest.raises(MembershipError, match="East did not sign its key share"):
            NORTH.open_key_shares(brought, GENERATION)


def test_a_share_encrypted_again_by_the_coordinator_does_not_open() -> None:
    """It cannot read the one it carries, so all it can do is to wrap that one again."""
    brought = carried()["North"]
    wrapped = envelope.seal(
        brought["East"],
        context=Context(EXPERIMENT, GENERATION, 0, "North"),
        recipient_key=NORTH.key.public,
        member_key=b"",
    )
    with pytest.raises(MembershipError, match="East did not sign its key share"):
        NORTH.open_key_shares(brought | {"East": wrapped}, GENERATION)


def test_one_members_share_is_not_anothers() -> None:
    brought = carried()["North"]
    exchanged = {"East": brought["West"], "West": brought["East"]}
    with pytest.raises(MembershipError, match="did not sign its key share"):
        NORTH.open_key_shares(exchanged, GENERATION)


def test_a_member_cannot_pass_on_a_share_as_its_own() -> None:
    """West has East's signed share, and seals it as if it came from West."""
    signature = EAST.identity.sign("key share", prefixed(b"East", b"e1", GENERATION, EAST.share))
    copied = envelope.seal(
        EAST.share + signature,
        context=Context(EXPERIMENT, GENERATION, 0, "North"),
        recipient_key=NORTH.key.public,
        member_key=b"",
    )
    with pytest.raises(MembershipError, match="West did not sign its key share"):
        NORTH.open_key_shares(carried()["North"] | {"West": copied}, GENERATION)


def test_a_share_sealed_for_another_member_does_not_open() -> None:
    brought = carried()
    with pytest.raises(MembershipError, match="the key share of East does not open"):
        NORTH.open_key_shares(brought["North"] | {"East": brought["West"]["East"]}, GENERATION)


def test_a_share_of_another_experiment_is_refused() -> None:
    other_list = [hospital.announce("e2") for hospital in HOSPITALS]
    other_generation = generation_digest(other_list, experiment="e2", roster=ROSTER)
    other = EAST.seal_key_shares(other_list, "e2")["North"]
    with pytest.raises(MembershipError, match="the key share of East does not open"):
        NORTH.open_key_shares(carried()["North"] | {"East": other}, GENERATION)
    # Sealed anew for this experiment by somebody who could read it, the signature gives it away.
    signature = EAST.identity.sign(
        "key share", prefixed(b"East", b"e2", other_generation, EAST.share)
    )
    moved = envelope.seal(
        EAST.share + signature,
        context=Context(EXPERIMENT, GENERATION, 0, "North"),
        recipient_key=NORTH.key.public,
        member_key=b"",
    )
    with pytest.raises(MembershipError, match="East did not sign its key share"):
        NORTH.open_key_shares(carried()["North"] | {"East": moved}, GENERATION)


def test_shares_of_an_earlier_generation_are_refused() -> None:
    """The same experiment with new keys: nothing of the old set-up opens."""
    before = carried()["North"]
    renewed = [replace(hospital, key=SealingKey.generate()) for hospital in HOSPITALS]
    new_list = [hospital.announce() for hospital in renewed]
    new_generation = generation_digest(new_list, experiment=EXPERIMENT, roster=ROSTER)
    with pytest.raises(MembershipError, match="does not open"):
        renewed[1].open_key_shares(before, new_generation)
    # Not even if North had kept its key and only the others had renewed theirs.
    with pytest.raises(MembershipError, match="does not open"):
        NORTH.open_key_shares(before, new_generation)


def test_a_share_missing_too_many_or_unknown_is_refused() -> None:
    brought = carried()["North"]
    for wrong in (
        {},
        {"East": brought["East"]},
        brought | {"North": brought["East"]},
        brought | {"Coordinator": brought["East"]},
        {"East": brought["East"], "west": brought["West"]},
    ):
        with pytest.raises(MembershipError, match="one key share of every other member"):
            NORTH.open_key_shares(wrong, GENERATION)


def test_a_share_of_another_length_is_refused_even_when_signed() -> None:
    for share in (b"", bytes(31), bytes(33), bytes(64)):
        statement = prefixed(b"East", b"North", b"e1", GENERATION, share)
        sealed = envelope.seal(
            share + EAST.identity.sign("key share", statement),
            context=Context(EXPERIMENT, GENERATION, 0, "North"),
            recipient_key=NORTH.key.public,
            member_key=b"",
        )
        with pytest.raises(MembershipError, match="East did not sign its key share"):
            NORTH.open_key_shares(carried()["North"] | {"East": sealed}, GENERATION)
        with pytest.raises(MembershipError, match=f"32 bytes, got {len(share)}"):
            replace(EAST, share=share).seal_key_shares(LIST)


def test_a_member_that_gives_different_shares_only_keeps_the_others_from_working() -> None:
    """Availability, not secrecy: keys differ, confirmations show it, nothing opens."""
    brought = carried()
    two_faced = replace(EAST, share=bytes(32))
    brought["West"]["East"] = two_faced.seal_key_shares(LIST)["West"]
    north = NORTH.member_key(brought["North"], GENERATION)
    west = WEST.member_key(brought["West"], GENERATION)
    assert north != west
    assert confirmation(north) != confirmation(west)
    context = Context(EXPERIMENT, GENERATION, 1, "West")
    sealed = envelope.seal(
        b"model", context=context, recipient_key=WEST.key.public, member_key=north
    )
    with pytest.raises(EnvelopeError):
        envelope.open(sealed, context=context, key=WEST.key, member_key=west)
