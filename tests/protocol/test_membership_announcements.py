"""An experiment's keys: a coordinator that cheats with the announcements gets none."""

from dataclasses import replace

import pytest

from protocol.sealing import envelope
from protocol.sealing.envelope import Context, EnvelopeError
from protocol.sealing.keys import SEALING_KEY_BYTES, SealingKey
from protocol.sealing.membership import (
    Announced,
    MembershipError,
    announce,
    check_announcements,
    derive_member_key,
    generation_digest,
)
from tests.protocol.three_members import (
    COORDINATOR,
    EAST,
    EXPERIMENT,
    GENERATION,
    HOSPITALS,
    LIST,
    NORTH,
    OTHER_ROSTER,
    ROSTER,
    WEST,
    Hospital,
    prefixed,
    refused,
)


def test_different_lists_for_two_hospitals_lead_to_different_keys_and_nothing_opens() -> None:
    """West announced twice (a retry, say); the coordinator shows one key to each side."""
    second = replace(WEST, key=SealingKey.generate())
    other_list = [*LIST[:2], second.announce()]
    other_generation = generation_digest(other_list, experiment=EXPERIMENT, roster=ROSTER)
    check_announcements(other_list, experiment=EXPERIMENT, roster=ROSTER)
    assert other_generation != GENERATION
    to_north = EAST.seal_key_shares(LIST)["North"]
    with pytest.raises(MembershipError, match="does not open"):
        NORTH.open_key_shares(
            {"East": to_north, "West": second.seal_key_shares(other_list)["North"]},
            other_generation,
        )
    shares = {h.name: h.share for h in HOSPITALS}
    east_key = derive_member_key(shares, roster=ROSTER, generation=GENERATION)
    north_key = derive_member_key(shares, roster=ROSTER, generation=other_generation)
    assert east_key != north_key
    sealed = envelope.seal(
        b"model",
        context=Context(EXPERIMENT, GENERATION, 1, "North"),
        recipient_key=NORTH.key.public,
        member_key=east_key,
    )
    for generation, member_key in (
        (GENERATION, north_key),
        (other_generation, east_key),
        (other_generation, north_key),
    ):
        with pytest.raises(EnvelopeError):
            envelope.open(
                sealed,
                context=Context(EXPERIMENT, generation, 1, "North"),
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
    for purpose in ("key share", "roster", "Announcement"):
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
    refused([LIST[position] for position in positions], "do not match the roster's members")


def test_an_announcement_too_many_is_refused() -> None:
    refused([*LIST, Hospital("Zurich").announce()], "do not match the roster's members")


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
    with pytest.raises(MembershipError, match=f"North: invalid announcement of {length} bytes"):
        Announced.from_bytes("North", bytes(length))


def test_an_announcement_survives_being_written_and_read() -> None:
    assert Announced.from_bytes("North", LIST[1].to_bytes()) == LIST[1]


def test_everything_in_the_list_changes_the_generation() -> None:
    different = {
        generation_digest(LIST, experiment="e2", roster=ROSTER),
        generation_digest(LIST, experiment=EXPERIMENT, roster=OTHER_ROSTER),
        generation_digest(LIST[:2], experiment=EXPERIMENT, roster=ROSTER),
        generation_digest(LIST[::-1], experiment=EXPERIMENT, roster=ROSTER),
        generation_digest(
            [replace(LIST[0], name="Eas"), *LIST[1:]], experiment=EXPERIMENT, roster=ROSTER
        ),
        generation_digest(
            [replace(LIST[0], signature=bytes(64)), *LIST[1:]], experiment=EXPERIMENT, roster=ROSTER
        ),
        generation_digest(
            [replace(LIST[0], sealing_key=bytes(1216)), *LIST[1:]],
            experiment=EXPERIMENT,
            roster=ROSTER,
        ),
    }
    assert len(different | {GENERATION}) == 8
