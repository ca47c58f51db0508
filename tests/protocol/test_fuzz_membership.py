"""Mutated announcements and shares: refused, quickly, and never a crash."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.sealing.keys import Identity, SealingKey
from protocol.sealing.membership import (
    PAIR_SECRET_BYTES,
    Announced,
    MembershipError,
    announce,
    check_announcements,
    open_key_shares,
    seal_key_shares,
)
from protocol.study.roster import Roster
from tests.fuzz import fuzz
from tests.protocol.mutations import Sample, mutated, refuses
from tests.protocol.three_members import GENERATION, IDENTITIES, KEYS, LIST, NAMES, ROSTER

STRANGER = Identity.generate()


# Announcement lists


def _announced(name: str, key: SealingKey, experiment: str, roster: Roster) -> Announced:
    return announce(IDENTITIES[name], key, name=name, experiment=experiment, roster=roster)


# Each was valid somewhere else, or is the announcement of somebody who isn't a member.
ELSEWHERE = [
    *(_announced(name, KEYS[name], "e2", ROSTER) for name in NAMES),
    *(_announced(name, KEYS[name], "e1", replace(ROSTER, generation=2)) for name in NAMES),
    *(
        announce(STRANGER, SealingKey.generate(), name=name, experiment="e1", roster=ROSTER)
        for name in (*NAMES, "Zurich")
    ),
]
ANNOUNCEMENTS = [Sample(one.to_bytes(), (1184, 1216, 1248, 1280)) for one in [*LIST, *ELSEWHERE]]


@st.composite
def odd_lists(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    """A list of names and announcements as they come from the network, changed somewhere."""
    arrived = [(one.name, one.to_bytes()) for one in LIST]
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(arrived) - 1)) if arrived else 0
        kind = draw(st.integers(0, 6))
        if kind == 0:
            arrived = draw(st.permutations(arrived))
        elif kind == 1:
            del arrived[at : at + 1]
        elif kind == 2 and arrived:
            arrived.insert(draw(st.integers(0, len(arrived))), arrived[at])
        elif kind == 3 and arrived:
            arrived[at] = (draw(st.sampled_from(NAMES) | st.text(max_size=8)), arrived[at][1])
        elif kind == 4:
            other = draw(st.sampled_from(ELSEWHERE))
            name = draw(st.sampled_from([other.name, *(name for name, _ in arrived[at : at + 1])]))
            arrived[at : at + 1] = [(name, other.to_bytes())]
        elif arrived:
            arrived[at] = (arrived[at][0], draw(mutated(ANNOUNCEMENTS)))
    assume(arrived != [(one.name, one.to_bytes()) for one in LIST])
    return arrived


def _check(arrived: list[tuple[str, bytes]]) -> None:
    announcements = [Announced.from_bytes(name, data) for name, data in arrived]
    check_announcements(announcements, experiment="e1", roster=ROSTER)


def test_the_list_itself_is_accepted() -> None:
    _check([(one.name, one.to_bytes()) for one in LIST])


@fuzz
@given(odd_lists())
def test_mutated_announcement_lists_are_refused(arrived: list[tuple[str, bytes]]) -> None:
    refuses(lambda: _check(arrived), MembershipError)


# Shares


def _shares(generation: bytes) -> dict[str, dict[str, bytes]]:
    return {
        name: seal_key_shares(
            bytes([number]) * 32,
            dict.fromkeys(NAMES, bytes([number]) * PAIR_SECRET_BYTES),
            IDENTITIES[name],
            name=name,
            experiment="e1",
            generation=generation,
            announcements=LIST,
        )
        for number, name in enumerate(NAMES)
    }


SHARES = _shares(GENERATION)
FOR_NORTH = {"East": SHARES["East"]["North"], "West": SHARES["West"]["North"]}
SEALED_SHARES = [
    Sample(data, (1088, 1120, 1152, 1185, 1249, 1265))
    for shares in (SHARES, _shares(bytes(32)))
    for by_recipient in shares.values()
    for data in by_recipient.values()
]


@st.composite
def odd_shares(draw: st.DrawFn) -> dict[str, bytes]:
    """The shares for North, with one or both replaced by something else."""
    sealed = dict(FOR_NORTH)
    for _ in range(draw(st.integers(1, 2))):
        sender = draw(st.sampled_from(["East", "West", *NAMES]) | st.text(max_size=6))
        valid = st.sampled_from([sample.data for sample in SEALED_SHARES])
        data = draw(st.none() | valid | mutated(SEALED_SHARES))
        if data is None:
            sealed.pop(sender, None)
        else:
            sealed[sender] = data
    assume(sealed != FOR_NORTH)
    return sealed


def _open_key_shares(sealed: dict[str, bytes]) -> dict[str, bytes]:
    opened = open_key_shares(
        sealed, KEYS["North"], name="North", experiment="e1", generation=GENERATION, roster=ROSTER
    )
    return {sender: share.key_share for sender, share in opened.items()}


def test_the_shares_themselves_are_accepted() -> None:
    assert _open_key_shares(FOR_NORTH) == {"East": bytes(32), "West": b"\x02" * 32}


@fuzz
@given(odd_shares())
def test_mutated_shares_are_refused(sealed: dict[str, bytes]) -> None:
    refuses(lambda: _open_key_shares(sealed), MembershipError)
