"""The hospital: an experiment or a leg against its own policy is refused."""

import json
import resource
from typing import Any

import pytest

from client_app.hospital.hospital import Hospital
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Announcement, Carries, Refusal
from protocol.sealing.keys import Identity
from protocol.study.roster import Member, Roster
from tests.client_app.small_hospital import (
    COORDINATOR,
    IDENTITIES,
    NAME,
    ROSTER,
    ROUNDS,
    STRANGER,
    TRAINING,
    Code,
    descriptor,
    leg,
    member,
    model,
    plain,
    remembered,
    set_up,
    trained,
)

POLICIES: dict[str, dict[str, Any]] = {
    "another model": {"models": ["linear"]},
    "more members": {"minimum-cohort": 4},
    "other members": {"members": ["east", "north"]},
    "more examples": {"minimum-local-examples": 9},
    "larger batches": {"minimum-batch": 4},
    "fewer rounds": {"maximum-rounds": ROUNDS - 1},
    "smaller steps": {"maximum-learning-rate": 0.09},
    "sealed models": {"sealed": True},
    "secure averaging": {"plain-aggregation": False},
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_an_experiment_against_the_hospitals_policy_is_refused(policy: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    here = member(memory=memory, policy=policy)

    assert plain(here.answer(set_up(descriptor()))) == Refusal(code=Code.AGAINST_POLICY)
    assert remembered(memory) == {}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_that_is_tightened_later_ends_the_experiment_here(policy: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    before = member(memory=memory)
    before.answer(set_up(descriptor()))
    assert trained(before.answer(leg(model())))
    restarted, second_leg = (
        member(memory=memory, policy=policy),
        leg(model(), leg=2, carries=Carries.ENVELOPE),
    )

    assert plain(restarted.answer(second_leg)) == Refusal(code=Code.AGAINST_POLICY)
    assert trained(member(memory=memory).answer(second_leg))


# 520 million parameters: a network of two gigabytes, before it is made float64.
HUGE = {
    "init": "own",
    "classes": 2**16,
    "training": TRAINING | {"model-options": json.dumps({"hidden": [4096] * 16})},
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_descriptor_is_compared_with_the_policy_before_its_network_is_built(
    policy: dict[str, Any],
) -> None:
    here = member(policy={"maximum-parameters": 10**15} | policy)

    assert_refused_without_memory(here, set_up(descriptor(**HUGE)))


def test_a_network_with_too_many_parameters_is_refused_before_it_is_built() -> None:
    assert_refused_without_memory(member(), set_up(descriptor(**HUGE)))


def assert_refused_without_memory(here: Hospital, request: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in kB
    assert plain(here.answer(request)) == Refusal(code=Code.AGAINST_POLICY)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


@pytest.mark.parametrize(("most", "is_allowed"), [(163, True), (162, False)])
def test_a_network_may_have_as_many_parameters_as_the_policy_says(
    most: int, is_allowed: bool
) -> None:
    # 36 inputs to 4 hidden units, these to 3 classes, and their biases: 144 + 4 + 12 + 3.
    reply = plain(member(policy={"maximum-parameters": most}).answer(set_up(descriptor())))

    assert isinstance(reply, Announcement if is_allowed else Refusal)


def new_roster(**identities: Identity) -> Roster:
    """Return the roster that the operator pins next, of these members."""
    members = [Member(name, identity.public) for name, identity in identities.items()]
    return Roster.make(ROSTER.study, 2, COORDINATOR.public, members)


NORTH, SOUTH = IDENTITIES["north"], IDENTITIES["south"]
EXPELLED = {
    "a member that has left": new_roster(north=NORTH, south=SOUTH, west=STRANGER),
    "a member with another key": new_roster(north=NORTH, south=SOUTH, east=STRANGER),
}


@pytest.mark.parametrize("roster", EXPELLED.values(), ids=EXPELLED)
def test_no_model_is_sent_to_a_member_that_is_no_longer_on_the_pinned_roster(
    roster: Roster,
) -> None:
    memory: dict[str, bytes] = {}
    before = member(memory=memory)
    before.answer(set_up(descriptor()))
    assert trained(before.answer(leg(model(), recipient="east")))
    now = member(memory=memory, roster=roster)
    later = {"leg": 2, "carries": Carries.ENVELOPE}

    reply = now.answer(leg(model(), **later, recipient="east"))

    assert plain(reply) == Refusal(code=Code.UNKNOWN_RECIPIENT)
    assert trained(now.answer(leg(model(), **later, recipient="south")))


def test_one_hospital_cannot_be_sent_all_the_models() -> None:
    here = member(policy={"maximum-fraction-per-recipient": 0.2})
    here.answer(set_up(descriptor(rounds=100)))
    codes = []
    for number in range(1, 30):
        request = leg(model(), leg=number, carries=Carries.ENVELOPE)
        reply = decode_signed_reply(here.answer(request))
        codes.append(reply.code if isinstance(reply, Refusal) else None)

    first = codes.index(Code.TOO_MANY_TO_ONE)
    assert codes[:first] == [None] * first
    assert set(codes[first:]) == {Code.TOO_MANY_TO_ONE}
    # Not counted is what was refused, and what stays here is shown to nobody.
    last = leg(model(), leg=40, carries=Carries.ENVELOPE, recipient=NAME)
    assert trained(here.answer(last))
