"""Training that diverged does not show: the model goes on as it came, in a reply like any other."""

import hashlib
import logging
from typing import Any

import numpy as np
import pytest

from client_app.hospital.hospital import Hospital
from protocol.messages import Carries, Trained
from protocol.model_bytes import ModelState
from tests.client_app.small_hospital import (
    EVERY_LEG_AGGREGATES,
    TRAINING,
    descriptor,
    leg,
    member,
    model,
    plain,
    set_up,
    trained,
    wired,
)

# What an operator leaves as it is, except that any learning rate may be asked for.
POLICY: dict[str, Any] = {
    "metrics": [],
    "hand-on-diverged": True,
    "maximum-learning-rate": 1e300,
}
CALM, OVERFLOWS = {"learning-rate": 0.1}, {"learning-rate": 1e200}
# Finite in float32, but beyond float16's largest number of 65504.
FLOAT16 = {"precision": "float32", "wire-dtype": "float16"}
DIVERGING: dict[str, dict[str, Any]] = {
    "plain SGD": OVERFLOWS,
    "momentum": OVERFLOWS | {"momentum": 0.9},
    "adam": OVERFLOWS | {"learning-rate": 1e300, "optimizer": "adam"},
    "too large for the wire": FLOAT16 | {"learning-rate": 1e6},
}


def hospital(chosen: dict[str, Any], **changes: Any) -> Hospital:
    training = TRAINING | chosen
    here = member(policy=POLICY | changes.pop("policy", {}))
    here.answer(set_up(descriptor(training=training, **changes)))
    return here


@pytest.mark.parametrize("chosen", DIVERGING.values(), ids=DIVERGING)
def test_a_hand_over_brings_the_received_model_with_its_optimizers_state(
    chosen: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    wire = chosen.get("wire-dtype", "same")
    calm = hospital(chosen | CALM | {"learning-rate": 1e-3})
    received = trained(calm.answer(leg(wired(TRAINING | chosen)))).payload

    with caplog.at_level(logging.WARNING):
        here = hospital(chosen)
        reply = trained(here.answer(leg(received, leg=2, carries=Carries.ENVELOPE)))

    sent, handed_on = (ModelState.from_bytes(d, wire=wire) for d in (received, reply.payload))
    assert reply.payload == sent.to_bytes(wire=wire)
    assert handed_on.is_finite()
    assert "diverged" in caplog.text  # the operator's log says so


@pytest.mark.parametrize("chosen", DIVERGING.values(), ids=DIVERGING)
@pytest.mark.parametrize("recipient", ["east", None])
def test_the_reply_is_like_that_of_training_that_did_not_diverge(
    chosen: dict[str, Any], recipient: str | None
) -> None:
    schedule = {} if recipient else EVERY_LEG_AGGREGATES
    request = leg(wired(TRAINING | chosen), recipient=recipient)
    calm, diverged = (
        hospital(chosen | rate, **schedule).answer(request)
        for rate in ({"learning-rate": 1e-3}, {})
    )

    assert len(calm) == len(diverged)
    assert trained(calm).payload != trained(diverged).payload
    one, other = (trained(reply).model_copy(update={"audit": None}) for reply in (calm, diverged))
    assert one.model_copy(update={"payload": b""}) == other.model_copy(update={"payload": b""})


def test_an_aggregation_gets_the_received_model() -> None:
    here = hospital(OVERFLOWS | {"momentum": 0.9}, **EVERY_LEG_AGGREGATES)

    reply = trained(here.answer(leg(model(), recipient=None)))

    assert reply.payload == model().to_bytes()


def test_it_diverges_in_these_tests_where_a_simulation_shows_it() -> None:
    for chosen in DIVERGING.values():
        here = hospital(chosen, policy={"hand-on-diverged": False})
        reply = trained(here.answer(leg(wired(TRAINING | chosen))))
        wire = chosen.get("wire-dtype", "same")
        sent = ModelState.from_bytes(reply.payload, wire=wire)
        assert not all(np.isfinite(array).all() for array in sent.parameters.values())


def test_the_same_request_again_gives_the_same_reply() -> None:
    here = hospital(OVERFLOWS)
    reply = here.answer(leg(model()))

    assert isinstance(plain(reply), Trained)
    assert hashlib.sha256(here.answer(leg(model()))).digest() == hashlib.sha256(reply).digest()
