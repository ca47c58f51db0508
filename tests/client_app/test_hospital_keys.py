"""The hospital: the keys it makes with the others, and the envelopes it opens."""

from typing import Any

import pytest

from protocol.messages import (
    Carries,
    Refusal,
)
from tests.client_app.small_hospital import (
    EVERY_SECOND_LEG_AGGREGATES,
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
    schedule, start = EVERY_SECOND_LEG_AGGREGATES, model(**chosen)
    study = Study(schedule=schedule, **chosen).make_keys()
    readable = {name: member(name) for name in NAMES}
    for name, each in readable.items():
        each.answer(set_up(descriptor(training=TRAINING | chosen, **schedule), name))

    first = {"name": "east", "recipient": "north"}
    then = {"leg": 2, "carries": Carries.ENVELOPE, "recipient": None}
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

    assert plain(study.members["north"].answer(tired)) == Refusal(code=Code.AGAINST_SCHEDULE)
    wrong_recipient = envelope(sealed, recipient="mallory")
    reply = study.members["north"].answer(wrong_recipient)
    assert plain(reply) == Refusal(code=Code.UNKNOWN_RECIPIENT)
    assert trained(study.members["north"].answer(envelope(sealed)))


def test_no_leg_is_served_before_the_keys_are_made() -> None:
    study = Study(schedule=EVERY_SECOND_LEG_AGGREGATES)  # key shares were sent, and none opened

    for request in (
        leg(model()),
        leg(model(), leg=2, recipient=None),  # needs no key, but comes after they were made
        envelope(bytes(2000), recipient=None),
    ):
        reply = study.members["north"].answer(request)
        assert plain(reply) == Refusal(code=Code.NOT_SET_UP)
