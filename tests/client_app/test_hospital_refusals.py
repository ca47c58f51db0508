"""The hospital: what it refuses, and that refusing changes nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from learning.data import Examples, Partition
from protocol.bundle import to_bundle
from protocol.messages import (
    Announcement,
    Carries,
    ExchangeKeyShares,
    Hello,
    OpenKeyShares,
    Refusal,
    RefusalCode,
    SetUp,
    Trained,
    decode_reply,
    encode,
)
from protocol.model_bytes import ModelState
from tests.client_app.small_hospital import (
    CLASSES,
    COORDINATOR,
    IDENTITIES,
    NAME,
    ROUNDS,
    SHARES,
    WITH_BUFFERS,
    Code,
    changed,
    close,
    descriptor,
    examples,
    flipped,
    forged,
    hospital,
    leg,
    member,
    model,
    plain,
    remembered,
    second,
    set_up,
    signed,
    trained,
    training,
    with_value,
)
from tests.client_app.test_hospital_keys import WRONG_ENVELOPES


def adam(**changes: Any) -> ModelState:
    optimizer = {
        f"{moment}/{name}": np.zeros_like(array)
        for moment in "mv"
        for name, array in model().parameters.items()
    } | {"step": np.array(0)}
    left = {name: array for name, array in (optimizer | changes).items() if array is not None}
    return ModelState(model().parameters, {}, left)


def raw_set_up(payload: bytes) -> bytes:
    return signed(SetUp(experiment="e2", payload=payload))


DEEP = '{"hidden": ' + "[" * 100_000 + "}"


# Each is sent to a hospital that has agreed to e1 and has answered leg 3 of it.
REFUSED: dict[str, tuple[RefusalCode, Callable[[], bytes]]] = {
    "nothing": (Code.MALFORMED, lambda: b""),
    "noise": (Code.MALFORMED, lambda: b"\xff" * 200),
    "a truncated request": (Code.MALFORMED, lambda: leg(model(), leg=4)[:60]),
    "a reply": (Code.MALFORMED, lambda: encode(Announcement(examples=1)) + bytes(64)),
    "an unreadable descriptor": (Code.MALFORMED, lambda: raw_set_up(b"{}")),
    "no descriptor": (Code.MALFORMED, lambda: raw_set_up(b"")),
    "a descriptor of another experiment": (
        Code.MALFORMED,
        lambda: raw_set_up(descriptor().to_bytes()),
    ),
    "a descriptor with white space": (
        Code.MALFORMED,
        lambda: raw_set_up(descriptor(experiment="e2").to_bytes() + b" "),
    ),
    "a request without a signature": (
        Code.BAD_SIGNATURE,
        lambda: leg(model(), leg=4)[:-64] + bytes(64),
    ),
    "a request of a stranger": (Code.BAD_SIGNATURE, lambda: forged(leg(model(), leg=4))),
    "a request of a member": (
        Code.BAD_SIGNATURE,
        lambda: forged(leg(model(), leg=4), IDENTITIES["east"]),
    ),
    "a signature for another purpose": (
        Code.BAD_SIGNATURE,
        lambda: forged(leg(model(), leg=4), COORDINATOR, "roster"),
    ),
    "a model changed on the way": (Code.BAD_SIGNATURE, lambda: flipped(leg(model(), leg=4), -70)),
    "a signature changed on the way": (
        Code.BAD_SIGNATURE,
        lambda: flipped(leg(model(), leg=4), -1),
    ),
    "a hello of a stranger": (Code.BAD_SIGNATURE, lambda: forged(signed(Hello()))),
    "a leg of an unknown experiment": (
        Code.UNKNOWN_EXPERIMENT,
        lambda: leg(model(), experiment="e9"),
    ),
    "a close of an unknown experiment": (Code.UNKNOWN_EXPERIMENT, lambda: close(model(), "e9")),
    "shares of an unknown experiment": (
        Code.UNKNOWN_EXPERIMENT,
        lambda: signed(ExchangeKeyShares(experiment="e9")),
    ),
    "another roster": (Code.ANOTHER_ROSTER, lambda: second(roster=bytes(32))),
    "examples of another shape": (Code.DESCRIPTOR_REFUSED, lambda: second(shape=(1, 6, 7))),
    "flat examples": (Code.DESCRIPTOR_REFUSED, lambda: second(shape=(36,))),
    "no shape": (Code.DESCRIPTOR_REFUSED, lambda: second(shape=())),
    "fewer classes than there are": (Code.DESCRIPTOR_REFUSED, lambda: second(classes=2)),
    "one class": (Code.DESCRIPTOR_REFUSED, lambda: second(classes=1)),
    "no classes": (Code.DESCRIPTOR_REFUSED, lambda: second(classes=0)),
    "an unknown model": (Code.DESCRIPTOR_REFUSED, lambda: training(model="gpt")),
    "a model that is a path": (Code.DESCRIPTOR_REFUSED, lambda: training(model="../../plug_in.py")),
    "a model that does not fit": (
        Code.DESCRIPTOR_REFUSED,
        lambda: training(model="resnet18", model_options="{}"),
    ),
    "unknown options": (
        Code.DESCRIPTOR_REFUSED,
        lambda: training(model_options='{"code": "import os"}'),
    ),
    "impossible options": (
        Code.DESCRIPTOR_REFUSED,
        lambda: training(model_options='{"hidden": [-1]}'),
    ),
    "options that fill the memory": (
        Code.DESCRIPTOR_REFUSED,
        lambda: training(model_options='{"hidden": [1000000]}'),
    ),
    "options that are no JSON": (Code.DESCRIPTOR_REFUSED, lambda: training(model_options="{")),
    "deep options": (Code.DESCRIPTOR_REFUSED, lambda: training(model_options=DEEP)),
    "an unknown setting": (Code.DESCRIPTOR_REFUSED, lambda: training(upload_data=True)),
    "an unknown loss": (Code.DESCRIPTOR_REFUSED, lambda: training(loss="memorise")),
    "a loss that does not fit": (Code.DESCRIPTOR_REFUSED, lambda: training(loss="hinge")),
    "an unknown optimizer": (Code.DESCRIPTOR_REFUSED, lambda: training(optimizer="lbfgs")),
    "a negative learning rate": (Code.DESCRIPTOR_REFUSED, lambda: training(learning_rate=-0.1)),
    "a learning rate of text": (Code.DESCRIPTOR_REFUSED, lambda: training(learning_rate="0.1")),
    "a learning rate of true": (Code.DESCRIPTOR_REFUSED, lambda: training(learning_rate=True)),
    "a negative batch": (Code.DESCRIPTOR_REFUSED, lambda: training(batch_size=-1)),
    "a fractional batch": (Code.DESCRIPTOR_REFUSED, lambda: training(batch_size=1.5)),
    "a momentum of one": (Code.DESCRIPTOR_REFUSED, lambda: training(momentum=1.0)),
    "half precision": (Code.DESCRIPTOR_REFUSED, lambda: training(precision="float16")),
    "a batch of one example": (Code.AGAINST_POLICY, lambda: training(batch_size=1)),
    "a learning rate that tears apart": (
        Code.AGAINST_POLICY,
        lambda: training(learning_rate=11.0),
    ),
    "more rounds than anybody needs": (Code.AGAINST_POLICY, lambda: second(rounds=100_001)),
    "keys that are no bundle": (
        Code.KEYS_REFUSED,
        lambda: signed(ExchangeKeyShares(experiment="e1", payload=b"\xff")),
    ),
    "keys of nobody": (Code.KEYS_REFUSED, lambda: signed(ExchangeKeyShares(experiment="e1"))),
    "shares before the keys": (
        Code.NOT_SET_UP,
        lambda: signed(OpenKeyShares(experiment="e1", payload=to_bundle({"east": b"x"}))),
    ),
    "a leg that is over": (Code.OLD_LEG, lambda: leg(model(), leg=2)),
    "other bytes for the same leg": (
        Code.CONFLICTING_REQUEST,
        lambda: leg(model(), leg=3, local_rounds=1),
    ),
    "another model for the same leg": (
        Code.CONFLICTING_REQUEST,
        lambda: leg(with_value(7.0), leg=3),
    ),
    "other terms for an agreed experiment": (
        Code.CONFLICTING_REQUEST,
        lambda: set_up(descriptor(rounds=ROUNDS + 1)),
    ),
    "no rounds": (Code.ROUNDS_REFUSED, lambda: leg(model(), leg=4, local_rounds=0)),
    "more rounds than agreed": (
        Code.ROUNDS_REFUSED,
        lambda: leg(model(), leg=4, local_rounds=ROUNDS + 1),
    ),
    "rounds beyond the end": (
        Code.ROUNDS_REFUSED,
        lambda: leg(model(), leg=4, first_round=ROUNDS - 1, local_rounds=2),
    ),
    "rounds after the end": (
        Code.ROUNDS_REFUSED,
        lambda: leg(model(), leg=4, first_round=ROUNDS, local_rounds=1),
    ),
    "endless rounds": (
        Code.ROUNDS_REFUSED,
        lambda: leg(model(), leg=4, local_rounds=2**53 - 1),
    ),
    "rounds that overflow": (
        Code.ROUNDS_REFUSED,
        lambda: leg(model(), leg=4, first_round=2**53 - 1, local_rounds=1),
    ),
    "no model though the first is shared": (
        Code.MALFORMED,
        lambda: leg(leg=4, carries=Carries.NOTHING),
    ),
    "no model where one was promised": (Code.MODEL_MISMATCH, lambda: leg(b"", leg=4)),
    "no safetensors": (Code.MODEL_MISMATCH, lambda: leg(b"\x80\x04pickle", leg=4)),
    "half a model": (Code.MODEL_MISMATCH, lambda: leg(model().to_bytes()[:-1], leg=4)),
    "a tensor less": (
        Code.MODEL_MISMATCH,
        lambda: leg(
            ModelState({k: v for k, v in model().parameters.items() if k != "output.bias"}), leg=4
        ),
    ),
    "a tensor more": (
        Code.MODEL_MISMATCH,
        lambda: leg(ModelState(model().parameters | {"extra": np.ones(1)}), leg=4),
    ),
    "a buffer it has not": (
        Code.MODEL_MISMATCH,
        lambda: leg(ModelState(model().parameters, {"n": np.array(1)}), leg=4),
    ),
    "a parameter as a buffer": (
        Code.MODEL_MISMATCH,
        lambda: leg(ModelState({}, model().parameters), leg=4),
    ),
    "another network": (Code.MODEL_MISMATCH, lambda: leg(model(**WITH_BUFFERS), leg=4)),
    "another shape": (
        Code.MODEL_MISMATCH,
        lambda: leg(changed("output.weight", np.transpose), leg=4),
    ),
    "a dimension more": (
        Code.MODEL_MISMATCH,
        lambda: leg(changed("output.bias", lambda a: a[None]), leg=4),
    ),
    "single precision": (
        Code.MODEL_MISMATCH,
        lambda: leg(changed("output.bias", lambda a: a.astype(np.float32)), leg=4),
    ),
    "whole numbers": (
        Code.MODEL_MISMATCH,
        lambda: leg(changed("output.bias", lambda a: a.astype(np.int64)), leg=4),
    ),
    "complex numbers": (
        Code.MODEL_MISMATCH,
        lambda: leg(changed("output.bias", lambda a: a.astype(np.complex64)), leg=4),
    ),
    "narrower numbers than agreed": (
        Code.MODEL_MISMATCH,
        lambda: leg(
            changed("output.bias", lambda a: a.astype(np.float32)).to_bytes(wire="float16"), leg=4
        ),
    ),
    "not a number": (Code.NOT_FINITE, lambda: leg(with_value(np.nan), leg=4)),
    "infinity": (Code.NOT_FINITE, lambda: leg(with_value(np.inf), leg=4)),
    "minus infinity": (Code.NOT_FINITE, lambda: leg(with_value(-np.inf), leg=4)),
    "not a number, handed over": (
        Code.NOT_FINITE,
        lambda: leg(with_value(np.nan), leg=4, carries=Carries.ENVELOPE),
    ),
    "optimiser state that plain SGD has not": (
        Code.MODEL_MISMATCH,
        lambda: leg(adam(), leg=4, carries=Carries.ENVELOPE),
    ),
    "optimiser state of an aggregate": (Code.MODEL_MISMATCH, lambda: leg(adam(), leg=4)),
    "a final model that is none": (Code.MODEL_MISMATCH, lambda: close(b"x")),
    "a final model that is not finite": (Code.NOT_FINITE, lambda: close(with_value(np.nan))),
    "a recipient nobody knows": (
        Code.UNKNOWN_RECIPIENT,
        lambda: leg(model(), leg=4, recipient="mallory"),
    ),
    "a recipient in other capitals": (
        Code.UNKNOWN_RECIPIENT,
        lambda: leg(model(), leg=4, recipient="East"),
    ),
}


@pytest.mark.parametrize(("code", "request_of"), REFUSED.values(), ids=REFUSED)
def test_a_refused_request_changes_nothing(
    code: RefusalCode, request_of: Callable[[], bytes]
) -> None:
    memory: dict[str, bytes] = {}
    here, undisturbed = hospital(memory), hospital()
    here.answer(leg(model(), leg=3))
    before = dict(memory)

    reply = here.answer(request_of())

    assert plain(reply) == Refusal(code=code)
    assert remembered(memory) == remembered(before)
    honest = leg(model(), leg=4, first_round=2)
    assert plain(here.answer(honest)) == plain(undisturbed.answer(honest))
    assert isinstance(decode_reply(here.answer(honest)), Trained)


ADAM_REFUSED: dict[str, tuple[RefusalCode, Callable[[], ModelState]]] = {
    "no optimiser state": (Code.MODEL_MISMATCH, lambda: ModelState(model().parameters)),
    "a moment less": (Code.MODEL_MISMATCH, lambda: adam(**{"m/output.bias": None})),
    "a tensor more": (Code.MODEL_MISMATCH, lambda: adam(extra=np.array(1.0))),
    "momentum instead": (
        Code.MODEL_MISMATCH,
        lambda: adam(**{"momentum/output.bias": np.zeros(CLASSES)}),
    ),
    "a moment of another shape": (
        Code.MODEL_MISMATCH,
        lambda: adam(**{"m/output.bias": np.zeros(CLASSES + 1)}),
    ),
    "a fractional step": (Code.MODEL_MISMATCH, lambda: adam(step=np.array(0.0))),
    "several steps": (Code.MODEL_MISMATCH, lambda: adam(step=np.zeros(2, np.int64))),
    "a moment that is not finite": (
        Code.NOT_FINITE,
        lambda: adam(**{"v/output.bias": np.full(CLASSES, np.inf)}),
    ),
}


@pytest.mark.parametrize(("code", "sent"), ADAM_REFUSED.values(), ids=ADAM_REFUSED)
def test_a_handed_over_model_has_exactly_its_optimizers_state(
    code: RefusalCode, sent: Callable[[], ModelState]
) -> None:
    here = hospital(optimizer="adam")

    assert trained(here.answer(leg(adam(), carries=Carries.ENVELOPE)))
    reply = here.answer(leg(sent(), leg=2, carries=Carries.ENVELOPE))
    assert plain(reply) == Refusal(code=code)


def test_running_statistics_that_are_not_finite_are_refused() -> None:
    good = model(**WITH_BUFFERS)
    bad = ModelState(good.parameters, good.buffers | {"norm1.running_var": np.array([1, np.nan])})
    here = hospital(**WITH_BUFFERS)

    assert trained(here.answer(leg(good)))
    assert plain(here.answer(leg(bad, leg=2))) == Refusal(code=Code.NOT_FINITE)


def test_held_out_examples_of_a_class_too_many_are_found_out_before_training() -> None:
    more = Examples(examples(5, 1).features, np.array([0, 1, 2, 3, 0]))
    here = member(share=Partition(NAME, SHARES[NAME].train, more))

    assert plain(here.answer(set_up(descriptor()))) == Refusal(code=Code.DESCRIPTOR_REFUSED)


def test_before_anything_is_agreed_every_leg_is_refused_unread() -> None:
    memory: dict[str, bytes] = {}
    here = member(memory=memory)

    for payload in (model(), b"junk"):
        assert plain(here.answer(leg(payload))) == Refusal(code=Code.UNKNOWN_EXPERIMENT)
    assert remembered(memory) == {}


def test_every_code_of_the_closed_list_is_shown_above() -> None:
    tables = (REFUSED, ADAM_REFUSED, WRONG_ENVELOPES)
    shown = {entry[0] for table in tables for entry in table.values()}
    # The agent turns away what is too large before a hospital sees it.
    elsewhere = {
        Code.ROLLED_BACK,
        Code.TOO_MANY_TO_ONE,
        Code.INTERNAL_ERROR,
        Code.TOO_LARGE,
    }

    assert shown | elsewhere == set(RefusalCode)
