"""The hospital: an experiment or a leg against its own policy is refused."""

from typing import Any

import pytest

from protocol.messages import Refusal, decode_reply
from tests.client_app.small_hospital import (
    NAME,
    ROUNDS,
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
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_an_experiment_against_the_hospitals_policy_is_refused(policy: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    here = member(memory=memory, policy=policy)

    assert plain(here.answer(set_up(descriptor()))) == Refusal(code=Code.AGAINST_POLICY)
    assert remembered(memory) == {}


def test_where_plain_aggregation_is_forbidden_no_model_is_shown_to_the_coordinator() -> None:
    here = member(policy={"plain-aggregation": False})
    here.answer(set_up(descriptor()))

    reply = here.answer(leg(model(), recipient=None))

    assert plain(reply) == Refusal(code=Code.AGAINST_POLICY)
    assert trained(here.answer(leg(model(), recipient="east")))


def test_one_hospital_cannot_be_sent_all_the_models() -> None:
    here = member(policy={"maximum-fraction-per-recipient": 0.2})
    here.answer(set_up(descriptor()))
    codes = []
    for number in range(1, 30):
        reply = decode_reply(here.answer(leg(model(), leg=number, local_rounds=1)))
        codes.append(reply.code if isinstance(reply, Refusal) else None)

    first = codes.index(Code.TOO_MANY_TO_ONE)
    assert codes[:first] == [None] * first
    assert set(codes[first:]) == {Code.TOO_MANY_TO_ONE}
    # Not counted is what was refused, and what stays here is shown to nobody.
    assert trained(here.answer(leg(model(), leg=40, recipient=NAME)))
