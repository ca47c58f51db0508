"""Mutated rosters: refused, quickly, and never a crash."""

import json
import re
from dataclasses import replace
from typing import Any
from unicodedata import is_normalized

from hypothesis import given
from hypothesis import strategies as st

from protocol.sealing.keys import Identity
from protocol.study.roster import Roster, RosterError
from tests.fuzz import fuzz
from tests.little_work import with_little_work
from tests.protocol.mutations import Sample, mutated, refuses
from tests.protocol.three_members import COORDINATOR, ROSTER


def _sample(roster: Roster, coordinator: Identity) -> Sample:
    data = roster.signed(coordinator)
    # A part ends at every value, so that flips hit names and numbers as often as keys.
    ends = {match.end() for match in re.finditer(rb'[":,}\]]+', data[:-64])}
    return Sample(data, (*sorted(ends), len(data) - 32, len(data)))


STRANGER = Identity.generate()
ROSTERS = [
    _sample(ROSTER, COORDINATOR),
    _sample(replace(ROSTER, generation=2), COORDINATOR),
    _sample(replace(ROSTER, study="Other"), COORDINATOR),
    _sample(replace(ROSTER, coordinator=STRANGER.public), STRANGER),
]


@fuzz
@given(mutated(ROSTERS))
def test_mutated_rosters_are_refused(data: bytes) -> None:
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


@fuzz
@given(odd_forms())
def test_even_its_coordinator_can_sign_nothing_but_a_roster(content: bytes) -> None:
    data = content + COORDINATOR.sign("roster", content)

    def read() -> Roster | None:
        try:
            return Roster.from_signed(data)
        except RosterError:
            return None

    roster = with_little_work(read)
    if roster is not None:
        assert roster.signed(COORDINATOR) == data
        assert _is_a_roster(json.loads(content))


def _is_a_roster(form: Any) -> bool:
    names = [member["name"] for member in form["members"]]
    keys = [form["coordinator"], *(member["identity"] for member in form["members"])]
    return (
        set(form) == {"version", "study", "generation", "coordinator", "members"}
        and all(set(member) == {"name", "identity"} for member in form["members"])
        and form["version"] == 1
        and 1 <= form["generation"] < 2**31
        and 2 <= len(names) == len({name.lower() for name in names})
        and names == sorted(names)
        and all(map(_is_a_name, [*names, form["study"]]))
        and len(set(keys)) == len(keys)
        and all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
    )


def _is_a_name(text: str) -> bool:
    signs = all(sign.isalpha() or sign in "0123456789 ._-" for sign in text)
    return 1 <= len(text) <= 64 and text[0].isalnum() and signs and is_normalized("NFC", text)
