"""The fingerprint that operators approve: every setting changes it, the members do not."""

from typing import Any

import pytest

from protocol.approval import approval_fingerprint
from protocol.descriptor import Descriptor
from protocol.sealing.keys import Identity
from protocol.study.roster import Member, Roster
from tests.client_app.small_hospital import COORDINATOR, IDENTITIES, ROSTER, STRANGER, descriptor

APPROVED = approval_fingerprint(descriptor(), ROSTER)


def roster(**changes: Any) -> Roster:
    members = [Member(name, identity.public) for name, identity in IDENTITIES.items()]
    given: dict[str, Any] = {"study": "study", "generation": 1, "coordinator": COORDINATOR.public}
    return Roster.make(**given | changes, members=members)


def test_it_has_160_bits_in_groups_that_can_be_read_out() -> None:
    groups = APPROVED.split(" ")
    assert len(groups) == 8
    assert {len(group) for group in groups} == {4}


@pytest.mark.parametrize("field", sorted(Descriptor.model_fields))
def test_every_field_of_the_descriptor_but_the_roster_changes_it(field: str) -> None:
    before = descriptor()
    another = bytes(32) if field == "schedule_commitment" else _another(getattr(before, field))
    changed = before.model_copy(update={field: another})
    assert changed != before
    same = approval_fingerprint(changed, ROSTER) == APPROVED
    assert same == (field == "roster")


def test_a_later_generation_has_the_same() -> None:
    newcomer = Member("west", Identity.generate().public)
    later = Roster.make("study", 2, COORDINATOR.public, [*ROSTER.members, newcomer])
    continued = descriptor().model_copy(update={"roster": later.digest})
    assert approval_fingerprint(continued, later) == APPROVED


def test_another_study_or_coordinator_has_another() -> None:
    assert approval_fingerprint(descriptor(), roster()) == APPROVED
    assert approval_fingerprint(descriptor(), roster(study="other")) != APPROVED
    stranger = roster(coordinator=STRANGER.public)
    assert approval_fingerprint(descriptor(), stranger) != APPROVED


def _another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case tuple():
            return (*value, 2)
        case dict():
            return value | {"batch-size": 5}
        case None:
            return 3
    raise AssertionError(value)
