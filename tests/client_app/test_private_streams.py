"""Private streams: nobody but the hospital can tell which patients are in a batch."""

import hashlib
import hmac
from typing import Any

import numpy as np

from client_app.hospital.agreement.policy import Policy
from client_app.state.store import STREAM_SECRET
from protocol.messages import Closed
from protocol.model_bytes import ModelState
from tests.client_app.small_hospital import (
    Carries,
    close,
    descriptor,
    leg,
    member,
    model,
    plain,
    set_up,
    trained,
)

SECRET = bytes(range(32))
# Ten batches of three of eight patients: two secrets draw the same once in 10¹⁷ times.
SCHEDULE: dict[str, Any] = {"daisy_period": 10}


def sent(memory: dict[str, bytes], policy: dict[str, Any], **changes: Any) -> bytes:
    """Return the model that a hospital sends in its first leg."""
    here = member(memory=memory, policy=policy)
    agreed = descriptor(**(SCHEDULE | changes))
    here.answer(set_up(agreed))
    carries = Carries.NOTHING if agreed.init == "own" else Carries.AGGREGATE
    payload = b"" if agreed.init == "own" else model()
    request = leg(payload, experiment=agreed.experiment, local_rounds=10, carries=carries)
    return trained(here.answer(request)).payload


PRIVATE, PUBLIC = {"private-streams": True}, {"private-streams": False}


def test_equal_hospitals_draw_different_batches() -> None:
    assert sent({}, PRIVATE) != sent({}, PRIVATE)
    assert sent({}, PUBLIC) == sent({}, PUBLIC)  # as simulations do, which must be repeatable


def test_a_policy_that_says_nothing_keeps_them_private() -> None:
    assert Policy.parse({}, source="test").private_streams


def test_the_streams_follow_from_the_hospitals_secret_and_the_experiment() -> None:
    # HKDF-SHA256 (RFC 5869) by hand, without salt.
    key = hmac.digest(bytes(32), SECRET, hashlib.sha256)
    seed = hmac.digest(key, b"streams e1" + b"\x01", hashlib.sha256)

    drawn = sent({STREAM_SECRET: SECRET}, PRIVATE)

    assert drawn == sent({}, PUBLIC, training_seed=seed)
    assert drawn == sent({STREAM_SECRET: SECRET}, PRIVATE, training_seed=bytes([7] * 32))
    assert drawn != sent({STREAM_SECRET: SECRET}, PRIVATE, experiment="e2")
    assert drawn != sent({STREAM_SECRET: SECRET[::-1]}, PRIVATE)


def test_a_hospitals_own_first_model_is_private_too() -> None:
    # With all patients in each batch, the first model is all that differs.
    training = {"model": "linear", "precision": "float64", "batch-size": 0}
    one, other = (
        ModelState.from_bytes(sent({}, PRIVATE, init="own", training=training)).parameters
        for _ in range(2)
    )

    assert not all(np.allclose(one[name], other[name]) for name in one)


def test_the_secret_outlives_restarts_and_experiments_and_is_never_sent() -> None:
    memory: dict[str, bytes] = {}
    here = member(memory=memory, policy=PRIVATE)
    replies = [here.answer(set_up(descriptor(**SCHEDULE)))]
    secret = memory[STREAM_SECRET]
    assert len(secret) == 32
    restarted = member(memory=dict(memory), policy=PRIVATE)
    request = leg(model(), local_rounds=10)

    replies += [here.answer(request), restarted.answer(request)]
    assert trained(replies[1]).payload == trained(replies[2]).payload
    replies.append(here.answer(close(model())))

    assert isinstance(plain(replies[-1]), Closed)
    assert memory[STREAM_SECRET] == secret
    assert all(text not in reply for text in (secret, secret.hex().encode()) for reply in replies)
