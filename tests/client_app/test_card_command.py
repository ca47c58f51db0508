"""`feddc hospital card` announces a changed policy: what is announced is what is refused."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

from client_app.hospital.agreement.policy import Policy
from protocol.messages import Refusal
from protocol.study.announced_policy import AnnouncedPolicy, PlannedExperiment, objections
from protocol.study.card import Card
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled
from tests.client_app.small_hospital import (
    OPEN_POLICY,
    ROUNDS,
    TRAINING,
    Code,
    descriptor,
    member,
    plain,
    set_up,
)


def card_of(hospital: Enrolled) -> Card:
    return Card.from_json((hospital.folder.path / "St Mary.hospital.json").read_bytes())


def test_a_changed_policy_is_noticed_and_announced(enrolled: Enrolled) -> None:
    before = card_of(enrolled)
    enrolled.set("minimum-cohort", "5")
    stale = "[policy] is not what your card of"
    assert stale in feddc("check", "--folder", enrolled.folder.path).stdout

    first = datetime.now(UTC).date()
    done = feddc("card", "--folder", enrolled.folder.path)

    assert done.exit_code == 0, done.output
    assert "at least 5 members" in done.stdout
    after = card_of(enrolled)
    assert after.has_keys_of(before)
    assert after.policy is not None
    assert after.policy.minimum_cohort == 5
    assert first <= after.policy.since <= datetime.now(UTC).date()
    assert stale not in feddc("check", "--folder", enrolled.folder.path).stdout


def test_the_card_of_init_announces_the_defaults_and_nothing_of_patients(
    enrolled: Enrolled,
) -> None:
    policy = card_of(enrolled).policy
    assert policy is not None
    assert policy.has_limits_of(Policy().announced(policy.since))
    kept_back = {"coordinators", "members", "minimum_local_examples", "minimum_held_out"}
    assert not kept_back & set(AnnouncedPolicy.model_fields)


def test_a_card_of_an_earlier_version_is_no_problem(enrolled: Enrolled) -> None:
    old = card_of(enrolled)
    path = enrolled.folder.path / "St Mary.hospital.json"
    path.write_text(Card.make("St Mary", enrolled.folder.identity(), old.transport).to_json())
    assert "card:" not in feddc("check", "--folder", enrolled.folder.path).stdout
    assert feddc("card", "--folder", enrolled.folder.path).exit_code == 0
    assert card_of(enrolled).policy is not None


def test_a_lost_or_damaged_card_is_told(enrolled: Enrolled) -> None:
    path = enrolled.folder.path / "St Mary.hospital.json"
    path.write_text("{}")
    damaged = feddc("card", "--folder", enrolled.folder.path)
    path.unlink()
    missing = feddc("card", "--folder", enrolled.folder.path)
    for done in (damaged, missing):
        assert done.exit_code == 2
        assert "renew-transport-key" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_models_that_no_card_can_list_are_told(enrolled: Enrolled) -> None:
    enrolled.set("models", json.dumps(["a model\twith a tab"]))
    done = feddc("card", "--folder", enrolled.folder.path)
    assert done.exit_code == 1
    assert "models in [policy] can't be announced" in done.stderr


def test_limits_without_an_end_are_announced_as_large_numbers() -> None:
    endless = {"maximum-rounds": 10**30, "maximum-learning-rate": float("inf")}
    policy = Policy.parse(endless, source="test").announced(date(2026, 1, 1))
    card = AnnouncedPolicy.model_validate_json(policy.model_dump_json())
    assert card.maximum_rounds == 2**53 - 1
    assert card.maximum_learning_rate > 1e300


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"models": ["linear"]},
        {"minimum-cohort": 4},
        {"minimum-batch": 4},
        {"maximum-rounds": ROUNDS - 1},
        {"maximum-learning-rate": 0.09},
        {"plain-aggregation": False},
        {"maximum-parameters": 162},
        {"max-epsilon": 1.0},
    ],
    ids=str,
)
def test_what_is_announced_is_objected_to_where_the_agent_refuses(policy: dict[str, Any]) -> None:
    asked = descriptor()
    reply = plain(member(policy=policy).answer(set_up(asked)))
    announced = Policy.parse(OPEN_POLICY | policy, source="test").announced(date(2026, 1, 1))
    # As a coordinator knows the experiment: 36 inputs, 4 hidden units, 3 classes, no noise.
    plan = PlannedExperiment(
        model="mlp",
        batch=TRAINING["batch-size"],
        rounds=ROUNDS,
        learning_rate=0.1,
        averaging="plain",
        aggregate="verified",
        members=3,
        least_summands=3,
        epsilon=lambda delta: float("inf"),
        parameters=163,
    )
    is_refused = reply == Refusal(code=Code.AGAINST_POLICY)
    assert is_refused == bool(list(objections(announced, plan))) == bool(policy)
