"""The hospital: the keys it makes with the others, and the envelopes it opens."""

from typing import Any

import pytest

from protocol.messages import (
    Carries,
    Refusal,
)
from tests.client_app.small_hospital import (
    NAMES,
    OPTIMIZERS,
    ROUNDS,
    TRAINING,
    Code,
    descriptor,
    leg,
    member,
    model,
    plain,
    set_up,
    trained,
)
from tests.client_app.three_hospitals import Study, envelope


def test_all_hospitals_make_the_same_key_and_no_message_holds_it() -> None:
    study = Study().make_keys()

    assert len(set(study.tags)) == 1
    keys = {memory["e1/member-key"] for memory in study.memories.values()}
    assert len(keys) == 1
    (key,) = keys
    everything = b"".join(study.announced.values()) + "".join(study.tags).encode()
    everything += b"".join(data for shares in study.sealed.values() for data in shares.values())
    for secret in (key, key.hex().encode()):
        assert secret not in everything


@pytest.mark.parametrize("chosen", [{}, OPTIMIZERS["adam"], OPTIMIZERS["running statistics"]])
def test_a_sealed_chain_computes_what_a_readable_one_does(chosen: dict[str, Any]) -> None:
    study, start = Study(**chosen).make_keys(), model(**chosen)
    readable = {name: member(name) for name in NAMES}
    for each in readable.values():
        each.answer(set_up(descriptor(training=TRAINING | chosen)))

    first = {"leg": 1, "recipient": "north"}
    then = {"leg": 2, "first_round": 2, "carries": Carries.ENVELOPE, "recipient": None}
    sealed = trained(study.members["east"].answer(leg(start, **first)))
    opened = trained(readable["east"].answer(leg(start, **first)))
    final = trained(study.members["north"].answer(leg(sealed.payload, **then, sealed_in=1)))
    expected = trained(readable["north"].answer(leg(opened.payload, **then)))

    assert (sealed.sealed, opened.sealed, final.sealed) == (True, False, False)
    assert final.payload == expected.payload
    weights = next(iter(start.parameters.values())).tobytes()[:8]
    assert weights not in sealed.payload


def test_an_envelope_whose_model_is_refused_was_not_opened() -> None:
    study = Study(optimizer="adam").make_keys()
    sealed = study.hand_over("east", "north")
    tired = envelope(sealed, first_round=ROUNDS)

    assert plain(study.members["north"].answer(tired)) == Refusal(code=Code.ROUNDS_REFUSED)
    wrong_recipient = envelope(sealed, recipient="mallory")
    reply = study.members["north"].answer(wrong_recipient)
    assert plain(reply) == Refusal(code=Code.UNKNOWN_RECIPIENT)
    assert trained(study.members["north"].answer(envelope(sealed)))


def test_a_sealed_hand_over_needs_the_keys() -> None:
    study = Study()  # key shares were sent, and none opened

    for request in (leg(model()), envelope(bytes(2000))):
        reply = study.members["north"].answer(request)
        assert plain(reply) == Refusal(code=Code.NOT_SET_UP)
