"""What a hospital announces of its policy: in its signed card, with nothing else in it."""

import json
import math
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from client_app.enrol.transport_key import new_transport_key
from protocol.canonical import canonical_bytes
from protocol.sealing.keys import Identity
from protocol.study.announced_policy import (
    AnnouncedPolicy,
    PlannedExperiment,
    objections,
    policy_text,
)
from protocol.study.card import Card, CardError

HOSPITAL = Identity.from_bytes(bytes([3] * 32))
_, TRANSPORT = new_transport_key()
POLICY = AnnouncedPolicy(
    since=date(2026, 11, 18),
    approval="each",
    maximum_experiments=10,
    models=("linear", "mlp"),
    minimum_cohort=3,
    minimum_batch=2,
    maximum_rounds=1000,
    maximum_parameters=500,
    maximum_learning_rate=1.0,
    plain_aggregation=False,
    aggregate="verified",
    metrics=("loss",),
    max_epsilon=3.0,
    delta=1e-5,
)
PLAN: dict[str, Any] = {
    "model": "mlp",
    "batch": 2,
    "rounds": 1000,
    "learning_rate": 1.0,
    "averaging": "secure",
    "aggregate": "verified",
    "members": 3,
    "least_summands": 3,
    "epsilon": lambda delta: 3.0 if delta == 1e-5 else math.inf,
    "begun": 9,
    "parameters": 500,
}


def test_a_card_carries_the_policy_and_its_day() -> None:
    card = Card.make("St Mary", HOSPITAL, TRANSPORT, POLICY)
    read = Card.from_json(card.to_json().encode())
    assert read == card
    assert read.policy == POLICY


def test_a_card_without_a_policy_is_accepted_as_before() -> None:
    # The statement that hospitals of earlier versions have signed.
    fields = {"identity": HOSPITAL.public.hex(), "name": "St Mary", "transport": TRANSPORT}
    signature = HOSPITAL.sign("card", canonical_bytes(fields | {"version": 1}))
    fingerprint = Card.make("St Mary", HOSPITAL, TRANSPORT).fingerprint
    form = fields | {"fingerprint": fingerprint, "signature": signature.hex()}
    assert Card.from_json(json.dumps(form).encode()).policy is None


def test_a_policy_is_neither_removed_nor_changed_nor_moved_to_another_card() -> None:
    form = json.loads(Card.make("St Mary", HOSPITAL, TRANSPORT, POLICY).to_json())
    for changed in (
        {key: value for key, value in form.items() if key != "policy"},
        form | {"policy": None},
        form | {"policy": form["policy"] | {"plain_aggregation": True}},
        form | {"policy": form["policy"] | {"since": "2026-11-19"}},
        json.loads(Card.make("St Mary", HOSPITAL, TRANSPORT).to_json())
        | {"policy": form["policy"]},
    ):
        with pytest.raises(CardError, match="not signed by the identity it names"):
            Card.from_json(json.dumps(changed).encode())


BAD: dict[str, Callable[[dict[str, Any]], object]] = {
    "no object": lambda policy: "open",
    "a key that is not known": lambda policy: policy | {"patients": 12},
    "a key that is missing": lambda policy: {k: v for k, v in policy.items() if k != "delta"},
    "text for a number": lambda policy: policy | {"maximum_rounds": "1000"},
    "a number for a truth": lambda policy: policy | {"plain_aggregation": 0},
    "a limit of nothing": lambda policy: policy | {"maximum_rounds": 0},
    "a number beyond JSON's": lambda policy: policy | {"maximum_parameters": 2**53},
    "no number": lambda policy: policy | {"max_epsilon": math.nan},
    "no end": lambda policy: policy | {"maximum_learning_rate": math.inf},
    "no day": lambda policy: policy | {"since": "yesterday"},
    "a time": lambda policy: policy | {"since": 1700000000},
    "another figure": lambda policy: policy | {"metrics": ["age"]},
    "a figure five times": lambda policy: policy | {"metrics": ["loss"] * 5},
    "a model that clears the screen": lambda policy: policy | {"models": ["\x1b[2J"]},
    "a long model": lambda policy: policy | {"models": ["m" * 65]},
    "many models": lambda policy: policy | {"models": ["m"] * 65},
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_even_its_hospital_can_sign_nothing_but_settings(
    change: Callable[[dict[str, Any]], object],
) -> None:
    card = Card.make("St Mary", HOSPITAL, TRANSPORT, POLICY)
    policy = change(POLICY.model_dump(mode="json"))
    content = {
        "identity": HOSPITAL.public.hex(), "name": "St Mary", "transport": TRANSPORT,
        "version": 2, "policy": policy,
    }  # fmt: skip
    signature = HOSPITAL.sign("card", canonical_bytes(content))
    form = json.loads(card.to_json()) | {"policy": policy, "signature": signature.hex()}
    with pytest.raises(CardError) as refused:
        Card.from_json(json.dumps(form).encode())
    assert str(refused.value).isprintable()
    assert "policy" in str(refused.value)


def test_what_is_within_every_limit_is_not_objected_to() -> None:
    assert list(objections(POLICY, PlannedExperiment(**PLAN))) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "cnn-3d"}, "model cnn-3d is not allowed"),
        ({"batch": 1}, "batches of 1 are too small"),
        ({"rounds": 1001}, "1001 rounds are too many"),
        ({"parameters": 501}, "501 parameters are more than 500"),
        ({"learning_rate": 1.1}, "learning rate 1.1 is too high"),
        ({"averaging": "plain"}, "averaging is plain"),
        ({"least_summands": 2}, "a secure sum may be of 2 models"),
        ({"aggregate": "same"}, "not the members' mean"),
        ({"members": 2}, "2 members are too few"),
        ({"begun": 10}, "10 experiments under this roster have begun"),
        ({"epsilon": lambda delta: 3.1}, "more than max-epsilon = 3.0"),
    ],
)
def test_each_limit_is_compared_alone(change: dict[str, Any], said: str) -> None:
    (found,) = objections(POLICY, PlannedExperiment(**PLAN | change))
    assert said in found


def test_the_text_names_every_setting() -> None:
    text = policy_text(POLICY)
    for part in (
        "after approval", "3 members", "batches of 2", "10 experiments", "1,000 rounds",
        "500 parameters", "learning rate 1;", "linear, mlp", "the members' mean", "loss",
        "ε in all: 3",
    ):  # fmt: skip
        assert part in text
    unlimited = POLICY.model_copy(
        update={"max_epsilon": 0.0, "metrics": (), "approval": "automatic"}
    )
    for part in ("at once", "may read: nothing", "ε in all: no limit"):
        assert part in policy_text(unlimited)
