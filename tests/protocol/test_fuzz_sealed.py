"""Mutated envelopes, rosters, announcements and shares: refused, quickly, and never a crash.

Each is tried with 150 mutations here and with ten thousand in the slow tests.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from protocol import envelope
from protocol.envelope import Context, EnvelopeError
from protocol.keys import Identity, SealingKey
from protocol.membership import (
    Announced,
    MembershipError,
    announce,
    check_announcements,
    epoch_digest,
    open_shares,
    seal_shares,
)
from protocol.roster import Member, Roster, RosterError

FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=10_000)

NAMES = ("East", "North", "West")
COORDINATOR = Identity.generate()
IDENTITIES = {name: Identity.generate() for name in NAMES}
KEYS = {name: SealingKey.generate() for name in NAMES}
MEMBERS = [Member(name, IDENTITIES[name].public) for name in NAMES]


def refuses(read: Callable[[], object], error: type[ValueError]) -> None:
    """Fails for acceptance, for any other exception, and for more than a second of work."""
    started = time.process_time()
    with pytest.raises(error):
        read()
    assert time.process_time() - started < 1


# Mutations of bytes


@dataclass(frozen=True)
class Sample:
    """Valid bytes and where their parts end."""

    data: bytes
    ends: tuple[int, ...]

    def parts(self) -> list[bytes]:
        starts = (0, *self.ends[:-1])
        return [self.data[start:end] for start, end in zip(starts, self.ends, strict=True)]


@st.composite
def mutated(draw: st.DrawFn, samples: Sequence[Sample]) -> bytes:
    """Something made of valid bytes that is itself none of them."""
    one, other = draw(st.sampled_from(samples)), draw(st.sampled_from(samples))
    data = draw(st.sampled_from(MUTATIONS))(draw, one, other)
    assume(data not in {sample.data for sample in samples})
    return data


def _flip(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    """One to three bits, each anywhere in a part: small parts are hit as often as large ones."""
    data = bytearray(one.data)
    for _number in range(draw(st.integers(1, 3))):
        part = draw(st.integers(0, len(one.ends) - 1))
        start = one.ends[part - 1] if part else 0
        data[draw(st.integers(start, one.ends[part] - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


def _truncate(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    return one.data[: draw(_cuts(one))]


def _behead(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    return one.data[draw(_cuts(one)) :]


def _extend(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    at = draw(_cuts(one))
    return one.data[:at] + draw(st.binary(min_size=1, max_size=200)) + one.data[at:]


def _remove(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    at = draw(_cuts(one))
    return one.data[:at] + one.data[at + draw(st.integers(1, 100)) :]


def _splice(draw: st.DrawFn, one: Sample, other: Sample) -> bytes:
    return one.data[: draw(_cuts(one))] + other.data[draw(_cuts(other)) :]


def _exchange_parts(draw: st.DrawFn, one: Sample, other: Sample) -> bytes:
    return b"".join(
        draw(st.sampled_from(pair)) for pair in zip(one.parts(), other.parts(), strict=True)
    )


def _shuffle_parts(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    return b"".join(draw(st.permutations(one.parts())))


def _overwrite(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    """A part becomes zeros, ones or noise of the same length."""
    parts = one.parts()
    part = draw(st.integers(0, len(parts) - 1))
    length = len(parts[part])
    noise = draw(st.randoms(use_true_random=False)).randbytes(length)
    parts[part] = draw(st.sampled_from([bytes(length), b"\xff" * length, noise]))
    return b"".join(parts)


def _repeat(draw: st.DrawFn, one: Sample, other: Sample) -> bytes:
    return draw(st.sampled_from([one.data * 2, one.data + other.data, one.data[::-1]]))


def _noise(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    length = draw(st.integers(0, 2 * len(one.data)))
    return draw(st.randoms(use_true_random=False)).randbytes(length)


def _cuts(sample: Sample) -> st.SearchStrategy[int]:
    return st.integers(0, len(sample.data)) | st.sampled_from([0, *sample.ends])


MUTATIONS = (
    _flip,
    _truncate,
    _behead,
    _extend,
    _remove,
    _splice,
    _exchange_parts,
    _shuffle_parts,
    _overwrite,
    _repeat,
    _noise,
)

# Envelopes

CONTEXT = Context("e1", bytes(range(32)), 3, "North")
MEMBER_KEY = bytes(range(32, 64))
# All for the same key: valid ones of this place, and of places close to it.
PLACES = [
    (CONTEXT, MEMBER_KEY),
    (CONTEXT, MEMBER_KEY),
    (replace(CONTEXT, leg=4), MEMBER_KEY),
    (replace(CONTEXT, recipient="West"), MEMBER_KEY),
    (CONTEXT, bytes(32)),
]
ENVELOPES = [
    Sample(
        sealed := envelope.seal(
            bytes([number]) * 40,
            context=context,
            recipient_key=KEYS["North"].public,
            member_key=member_key,
        ),
        (1088, 1120, len(sealed) - 16, len(sealed)),
    )
    for number, (context, member_key) in enumerate(PLACES)
]


def test_only_what_was_sealed_for_this_place_opens() -> None:
    for number, sample in enumerate(ENVELOPES):
        if number < 2:
            assert _open(sample.data) == bytes([number]) * 40
        else:
            refuses(lambda data=sample.data: _open(data), EnvelopeError)


def _open(data: bytes) -> bytes:
    return envelope.open(data, context=CONTEXT, key=KEYS["North"], member_key=MEMBER_KEY)


@given(mutated(ENVELOPES))
@FEW
def test_mutated_envelopes_are_refused(data: bytes) -> None:
    refuses(lambda: _open(data), EnvelopeError)


@pytest.mark.slow
@given(mutated(ENVELOPES))
@MANY
def test_ten_thousand_mutated_envelopes_are_refused(data: bytes) -> None:
    refuses(lambda: _open(data), EnvelopeError)


@pytest.mark.slow
def test_every_bit_of_an_envelope_matters() -> None:
    sealed = ENVELOPES[0].data
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        refuses(lambda data=bytes(changed): _open(data), EnvelopeError)


# Rosters


def _sample(roster: Roster, coordinator: Identity) -> Sample:
    data = roster.signed(coordinator)
    # A part ends at every value, so that flips hit names and numbers as often as keys.
    ends = {match.end() for match in re.finditer(rb'[":,}\]]+', data[:-64])}
    return Sample(data, (*sorted(ends), len(data) - 32, len(data)))


STRANGER = Identity.generate()
ROSTER = Roster.make("Study", 1, COORDINATOR.public, MEMBERS)
ROSTERS = [
    _sample(ROSTER, COORDINATOR),
    _sample(replace(ROSTER, epoch=2), COORDINATOR),
    _sample(replace(ROSTER, study="Other"), COORDINATOR),
    _sample(replace(ROSTER, coordinator=STRANGER.public), STRANGER),
]


@given(mutated(ROSTERS))
@FEW
def test_mutated_rosters_are_refused(data: bytes) -> None:
    refuses(lambda: Roster.from_signed(data), RosterError)


@pytest.mark.slow
@given(mutated(ROSTERS))
@MANY
def test_ten_thousand_mutated_rosters_are_refused(data: bytes) -> None:
    refuses(lambda: Roster.from_signed(data), RosterError)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@st.composite
def odd_forms(draw: st.DrawFn) -> bytes:
    """A roster's JSON with values replaced, added and removed, or its bytes mutated."""
    if draw(st.booleans()):
        unsigned = [Sample(s.data[:-64], s.ends[:-2]) for s in ROSTERS]
        return draw(mutated(unsigned))
    form: dict[str, Any] = json.loads(ROSTER.content)
    for _ in range(draw(st.integers(1, 3))):
        members = form.get("members")
        target: Any = form
        if draw(st.booleans()) and isinstance(members, list) and members:
            target = draw(st.sampled_from(members))
        if not isinstance(target, dict):
            continue
        key = draw(st.sampled_from(sorted(target)) if target else st.just("x"))
        if draw(st.integers(0, 4)) == 0:
            target.pop(key, None)
        else:
            target[draw(st.just(key) | st.text(max_size=5))] = draw(json_values)
    return json.dumps(form, sort_keys=True, separators=(",", ":")).encode()


def _read_as_itself_or_refused(content: bytes) -> None:
    """Signed by the coordinator, whatever it is: read if and only if it is a roster as written."""
    data = content + COORDINATOR.sign("roster", content)
    started = time.process_time()
    try:
        roster = Roster.from_signed(data)
    except RosterError:
        roster = None
    assert time.process_time() - started < 1
    if roster is not None:
        assert roster.signed(COORDINATOR) == data
        assert _is_a_roster(json.loads(content))


def _is_a_roster(form: Any) -> bool:
    names = [member["name"] for member in form["members"]]
    keys = [form["coordinator"], *(member["identity"] for member in form["members"])]
    return (
        set(form) == {"version", "study", "epoch", "coordinator", "members"}
        and all(set(member) == {"name", "identity"} for member in form["members"])
        and form["version"] == 1
        and 1 <= form["epoch"] < 2**31
        and 2 <= len(names) == len({name.lower() for name in names})
        and names == sorted(names)
        and all(
            re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9 ._-]{,63}", n) for n in [*names, form["study"]]
        )
        and len(set(keys)) == len(keys)
        and all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
    )


@given(odd_forms())
@FEW
def test_even_its_coordinator_can_sign_nothing_but_a_roster(content: bytes) -> None:
    _read_as_itself_or_refused(content)


@pytest.mark.slow
@given(odd_forms())
@MANY
def test_even_its_coordinator_can_sign_nothing_but_a_roster_in_ten_thousand_tries(
    content: bytes,
) -> None:
    _read_as_itself_or_refused(content)


# Announcement lists


def _announced(name: str, key: SealingKey, experiment: str, roster: Roster) -> Announced:
    return announce(IDENTITIES[name], key, name=name, experiment=experiment, roster=roster)


LIST = [_announced(name, KEYS[name], "e1", ROSTER) for name in NAMES]
# Each was valid somewhere else, or is the announcement of somebody who isn't a member.
ELSEWHERE = [
    *(_announced(name, KEYS[name], "e2", ROSTER) for name in NAMES),
    *(_announced(name, KEYS[name], "e1", replace(ROSTER, epoch=2)) for name in NAMES),
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


@given(odd_lists())
@FEW
def test_mutated_announcement_lists_are_refused(arrived: list[tuple[str, bytes]]) -> None:
    refuses(lambda: _check(arrived), MembershipError)


@pytest.mark.slow
@given(odd_lists())
@MANY
def test_ten_thousand_mutated_announcement_lists_are_refused(
    arrived: list[tuple[str, bytes]],
) -> None:
    refuses(lambda: _check(arrived), MembershipError)


# Shares

EPOCH = epoch_digest(LIST, experiment="e1", roster=ROSTER)


def _shares(epoch: bytes) -> dict[str, dict[str, bytes]]:
    return {
        name: seal_shares(
            bytes([number]) * 32,
            IDENTITIES[name],
            name=name,
            experiment="e1",
            epoch=epoch,
            announcements=LIST,
        )
        for number, name in enumerate(NAMES)
    }


SHARES = _shares(EPOCH)
FOR_NORTH = {"East": SHARES["East"]["North"], "West": SHARES["West"]["North"]}
SEALED_SHARES = [
    Sample(data, (1088, 1120, 1152, 1216, 1232))
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


def _open_shares(sealed: dict[str, bytes]) -> dict[str, bytes]:
    return open_shares(
        sealed, KEYS["North"], name="North", experiment="e1", epoch=EPOCH, roster=ROSTER
    )


def test_the_shares_themselves_are_accepted() -> None:
    assert _open_shares(FOR_NORTH) == {"East": bytes(32), "West": b"\x02" * 32}


@given(odd_shares())
@FEW
def test_mutated_shares_are_refused(sealed: dict[str, bytes]) -> None:
    refuses(lambda: _open_shares(sealed), MembershipError)


@pytest.mark.slow
@given(odd_shares())
@MANY
def test_ten_thousand_mutated_shares_are_refused(sealed: dict[str, bytes]) -> None:
    refuses(lambda: _open_shares(sealed), MembershipError)
