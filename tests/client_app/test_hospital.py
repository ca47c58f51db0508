"""The hospital: what it refuses, that refusing changes nothing, and that it repeats itself."""

import json
import logging
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from client_app.hospital import Hospital
from learning.data import Examples, Share
from learning.models import build
from learning.trainer import Trainer
from protocol.descriptor import Descriptor
from protocol.messages import (
    Announcement,
    Carries,
    Close,
    Closed,
    Hello,
    Introduction,
    Refusal,
    RefusalCode,
    SetUp,
    Trained,
    TrainLeg,
    decode_reply,
    encode,
)
from protocol.model_bytes import Arrays, ModelState
from protocol.randomness import TrainingStreams

NAME, SHAPE, CLASSES, ROUNDS = "north", (1, 6, 6), 3, 20
TRAINING: dict[str, Any] = {
    "model": "mlp",
    "model-options": '{"hidden": [4]}',
    "precision": "float64",
    "batch-size": 3,
}
# mri-cnn has BatchNorm: running statistics and counters travel with it.
WITH_BUFFERS = {"model": "mri-cnn", "model-options": '{"filters": [2, 2]}'}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "adam": {"optimizer": "adam", "learning-rate": 0.01},
    "fedprox": {"proximal-mu": 0.7},
    "fedprox with adam": {"proximal-mu": 0.7, "optimizer": "adam", "learning-rate": 0.01},
    "momentum kept": {"momentum": 0.9, "optimizer-state": "kept"},
    "adam kept": {"optimizer": "adam", "learning-rate": 0.01, "optimizer-state": "kept"},
    "running statistics": WITH_BUFFERS | {"momentum": 0.9},
}


def examples(count: int, seed: int) -> Examples:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, *SHAPE)).astype(np.float32)
    return Examples(features, rng.integers(0, CLASSES, count))


SHARE = Share(NAME, examples(8, seed=1), examples(5, seed=2))


def descriptor(**changes: Any) -> Descriptor:
    fields: dict[str, Any] = {
        "experiment": "e1",
        "rounds": ROUNDS,
        "daisy_period": 1,
        "aggregation_period": 5,
        "init": "shared",
        "shape": SHAPE,
        "classes": CLASSES,
        "training": TRAINING,
        "training_seed": bytes(32),
        "roster": ("east", NAME, "south"),
    }
    return Descriptor(**(fields | changes))


def set_up(agreed: Descriptor) -> bytes:
    return encode(SetUp(experiment=agreed.experiment, payload=agreed.to_bytes()))


def hospital(
    state: dict[str, bytes] | None = None, *, share: Share = SHARE, **training: Any
) -> Hospital:
    """Return a hospital that has agreed to an experiment with these training settings."""
    member = Hospital(NAME, share, {} if state is None else state)
    reply = member.answer(set_up(descriptor(training=TRAINING | training)))
    assert decode_reply(reply) == Announcement(examples=8)
    return member


def model(**training: Any) -> ModelState:
    """Return the network's first state, taken from the registry and torch alone."""
    chosen = TRAINING | training
    network = build(
        chosen["model"],
        shape=SHAPE,
        classes=CLASSES,
        options=json.loads(chosen["model-options"]),
        seed=5,
    ).to(torch.float64)
    trained = {name for name, _ in network.named_parameters()}
    arrays = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
    return ModelState(
        {name: array for name, array in arrays.items() if name in trained},
        {name: array for name, array in arrays.items() if name not in trained},
    )


def leg(payload: bytes | ModelState = b"", **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "experiment": "e1",
        "leg": 1,
        "first_round": 0,
        "local_rounds": 2,
        "carries": Carries.AGGREGATE,
        "recipient": "east",
    }
    data = payload.to_bytes() if isinstance(payload, ModelState) else payload
    return encode(TrainLeg(**(fields | changes), payload=data))


def trained(reply: bytes) -> Trained:
    message = decode_reply(reply)
    assert isinstance(message, Trained), message
    return message


# --- what it agrees to ----------------------------------------------------------------------------


def test_it_says_its_name() -> None:
    assert decode_reply(Hospital(NAME, SHARE, {}).answer(encode(Hello()))) == Introduction(
        hospital=NAME
    )


def test_it_agrees_and_says_how_many_examples_it_trains_on() -> None:
    state: dict[str, bytes] = {}

    reply = Hospital(NAME, SHARE, state).answer(set_up(descriptor()))

    assert decode_reply(reply) == Announcement(examples=8)
    assert state == {"descriptor": descriptor().to_bytes()}


def test_a_reply_says_nothing_of_the_hospital_but_what_the_format_has() -> None:
    # No field names the sender or could: an envelope's recipient must not learn whose model it is.
    reply = trained(hospital(optimizer="adam").answer(leg(model())))
    sent = ModelState.from_bytes(reply.payload)

    assert NAME.encode() not in reply.payload
    assert set(sent.parameters) == set(model().parameters)
    assert {name.split("/")[0] for name in sent.optimizer} == {"m", "v", "step"}


# --- what it refuses ------------------------------------------------------------------------------


def changed(name: str, change: Callable[[Any], Any]) -> ModelState:
    parameters = dict(model().parameters)
    parameters[name] = change(parameters[name])
    return ModelState(parameters)


def with_value(value: float) -> ModelState:
    def place(array: Any) -> Any:
        array = array.copy()
        array.flat[-1] = value
        return array

    return changed("output.bias", place)


def adam(**changes: Any) -> ModelState:
    moments = {
        f"{moment}/{name}": np.zeros_like(array)
        for moment in "mv"
        for name, array in model().parameters.items()
    }
    optimizer = moments | {"step": np.array(0)} | changes
    return ModelState(
        model().parameters, {}, {name: a for name, a in optimizer.items() if a is not None}
    )


def training(**changes: Any) -> bytes:
    settings = {key.replace("_", "-"): value for key, value in changes.items()}
    return set_up(descriptor(experiment="e2", training=TRAINING | settings))


def second(**changes: Any) -> bytes:
    return set_up(descriptor(**({"experiment": "e2"} | changes)))


def raw_set_up(payload: bytes) -> bytes:
    return encode(SetUp(experiment="e2", payload=payload))


M, U, D = RefusalCode.MALFORMED, RefusalCode.UNKNOWN_EXPERIMENT, RefusalCode.DESCRIPTOR_REFUSED
X, R = RefusalCode.MODEL_MISMATCH, RefusalCode.ROUNDS_REFUSED
N, F = RefusalCode.NOT_A_MEMBER, RefusalCode.NOT_FINITE
DEEP = '{"hidden": ' + "[" * 100_000 + "}"

REFUSED: dict[str, tuple[RefusalCode, Callable[[], bytes]]] = {
    "nothing": (M, lambda: b""),
    "noise": (M, lambda: b"\xff" * 100),
    "a truncated request": (M, lambda: leg(model())[:50]),
    "a reply": (M, lambda: encode(Announcement(examples=1))),
    "an unreadable descriptor": (M, lambda: raw_set_up(b"{}")),
    "no descriptor": (M, lambda: raw_set_up(b"")),
    "a descriptor of another experiment": (M, lambda: raw_set_up(descriptor().to_bytes())),
    "a descriptor with white space": (
        M,
        lambda: raw_set_up(descriptor(experiment="e2").to_bytes() + b" "),
    ),
    "a leg of an unknown experiment": (U, lambda: leg(model(), experiment="e9")),
    "a close of an unknown experiment": (
        U,
        lambda: encode(Close(experiment="e9", payload=model().to_bytes())),
    ),
    "a roster without this hospital": (N, lambda: second(roster=("east", "south"))),
    "an empty roster": (N, lambda: second(roster=())),
    "a roster with a similar name": (N, lambda: second(roster=("North", "north "))),
    "examples of another shape": (D, lambda: second(shape=(1, 6, 7))),
    "flat examples": (D, lambda: second(shape=(36,))),
    "no shape": (D, lambda: second(shape=())),
    "one class": (D, lambda: second(classes=1)),
    "no classes": (D, lambda: second(classes=0)),
    "an unknown model": (D, lambda: training(model="gpt")),
    "a model that is a path": (D, lambda: training(model="../../plug_in.py")),
    "a model that does not fit": (D, lambda: training(model="resnet18", model_options="{}")),
    "unknown options": (D, lambda: training(model_options='{"code": "import os"}')),
    "impossible options": (D, lambda: training(model_options='{"hidden": [-1]}')),
    "options that fill the memory": (D, lambda: training(model_options='{"hidden": [1000000]}')),
    "options that are no JSON": (D, lambda: training(model_options="{")),
    "deep options": (D, lambda: training(model_options=DEEP)),
    "an unknown setting": (D, lambda: training(upload_data=True)),
    "an unknown loss": (D, lambda: training(loss="memorise")),
    "a loss that does not fit": (D, lambda: training(loss="hinge")),
    "an unknown optimizer": (D, lambda: training(optimizer="lbfgs")),
    "a negative learning rate": (D, lambda: training(learning_rate=-0.1)),
    "a learning rate of text": (D, lambda: training(learning_rate="0.1")),
    "a learning rate of true": (D, lambda: training(learning_rate=True)),
    "a negative batch": (D, lambda: training(batch_size=-1)),
    "a fractional batch": (D, lambda: training(batch_size=1.5)),
    "a momentum of one": (D, lambda: training(momentum=1.0)),
    "half precision": (D, lambda: training(precision="float16")),
    "no rounds": (R, lambda: leg(model(), local_rounds=0)),
    "more rounds than agreed": (R, lambda: leg(model(), local_rounds=ROUNDS + 1)),
    "rounds beyond the end": (R, lambda: leg(model(), first_round=ROUNDS - 1, local_rounds=2)),
    "rounds after the end": (R, lambda: leg(model(), first_round=ROUNDS, local_rounds=1)),
    "endless rounds": (R, lambda: leg(model(), local_rounds=2**53 - 1)),
    "rounds that overflow": (R, lambda: leg(model(), first_round=2**53 - 1, local_rounds=1)),
    "no model though the first is shared": (M, lambda: leg(carries=Carries.NOTHING)),
    "no model where one was promised": (X, lambda: leg(b"")),
    "no safetensors": (X, lambda: leg(b"\x80\x04pickle")),
    "half a model": (X, lambda: leg(model().to_bytes()[:-1])),
    "a tensor less": (
        X,
        lambda: leg(
            ModelState({k: v for k, v in model().parameters.items() if k != "output.bias"})
        ),
    ),
    "a tensor more": (X, lambda: leg(ModelState(model().parameters | {"extra": np.ones(1)}))),
    "a buffer it has not": (X, lambda: leg(ModelState(model().parameters, {"n": np.array(1)}))),
    "a parameter as a buffer": (X, lambda: leg(ModelState({}, model().parameters))),
    "another network": (X, lambda: leg(model(**WITH_BUFFERS))),
    "another shape": (X, lambda: leg(changed("output.weight", np.transpose))),
    "a dimension more": (X, lambda: leg(changed("output.bias", lambda a: a[None]))),
    "single precision": (X, lambda: leg(changed("output.bias", lambda a: a.astype(np.float32)))),
    "whole numbers": (X, lambda: leg(changed("output.bias", lambda a: a.astype(np.int64)))),
    "complex numbers": (X, lambda: leg(changed("output.bias", lambda a: a.astype(np.complex64)))),
    "not a number": (F, lambda: leg(with_value(np.nan))),
    "infinity": (F, lambda: leg(with_value(np.inf))),
    "minus infinity": (F, lambda: leg(with_value(-np.inf))),
    "not a number, handed over": (F, lambda: leg(with_value(np.nan), carries=Carries.ENVELOPE)),
    "optimiser state that plain SGD has not": (X, lambda: leg(adam(), carries=Carries.ENVELOPE)),
    "optimiser state of an aggregate": (X, lambda: leg(adam())),
    "a final model that is none": (X, lambda: encode(Close(experiment="e1", payload=b"x"))),
    "a final model that is not finite": (
        F,
        lambda: encode(Close(experiment="e1", payload=with_value(np.nan).to_bytes())),
    ),
}


@pytest.mark.parametrize(("code", "request_of"), REFUSED.values(), ids=REFUSED)
def test_a_refused_request_changes_nothing(
    code: RefusalCode, request_of: Callable[[], bytes]
) -> None:
    state: dict[str, bytes] = {}
    member, undisturbed = hospital(state), hospital()
    member.answer(leg(model()))
    before = dict(state)

    reply = member.answer(request_of())

    assert reply == encode(Refusal(code=code))
    assert state == before
    honest = leg(model(), leg=2, first_round=2)
    assert member.answer(honest) == undisturbed.answer(honest)
    assert isinstance(decode_reply(member.answer(honest)), Trained)


ADAM_REFUSED: dict[str, tuple[RefusalCode, Callable[[], ModelState]]] = {
    "no optimiser state": (X, lambda: ModelState(model().parameters)),
    "a moment less": (X, lambda: adam(**{"m/output.bias": None})),
    "a tensor more": (X, lambda: adam(extra=np.array(1.0))),
    "momentum instead": (X, lambda: adam(**{"momentum/output.bias": np.zeros(CLASSES)})),
    "a moment of another shape": (X, lambda: adam(**{"m/output.bias": np.zeros(CLASSES + 1)})),
    "a fractional step": (X, lambda: adam(step=np.array(0.0))),
    "several steps": (X, lambda: adam(step=np.zeros(2, np.int64))),
    "a moment that is not finite": (F, lambda: adam(**{"v/output.bias": np.full(CLASSES, np.inf)})),
}


@pytest.mark.parametrize(("code", "sent"), ADAM_REFUSED.values(), ids=ADAM_REFUSED)
def test_a_handed_over_model_has_exactly_its_optimizers_state(
    code: RefusalCode, sent: Callable[[], ModelState]
) -> None:
    member = hospital(optimizer="adam")

    assert trained(member.answer(leg(adam(), carries=Carries.ENVELOPE)))
    assert member.answer(leg(sent(), carries=Carries.ENVELOPE)) == encode(Refusal(code=code))


def test_running_statistics_that_are_not_finite_are_refused() -> None:
    good = model(**WITH_BUFFERS)
    bad = ModelState(good.parameters, good.buffers | {"norm1.running_var": np.array([1, np.nan])})
    member = hospital(**WITH_BUFFERS)

    assert trained(member.answer(leg(good)))
    assert member.answer(leg(bad)) == encode(Refusal(code=F))


def test_before_anything_is_agreed_every_leg_is_refused() -> None:
    state: dict[str, bytes] = {}
    member = Hospital(NAME, SHARE, state)

    assert member.answer(leg(model())) == encode(Refusal(code=U))
    assert state == {}


def test_without_agreement_it_does_not_look_at_the_model() -> None:
    # Nothing of what is sent is read before it is clear that the experiment was agreed to.
    assert Hospital(NAME, SHARE, {}).answer(leg(b"junk")) == encode(Refusal(code=U))


def test_an_internal_error_gives_only_its_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state: dict[str, bytes] = {}
    member = hospital(state)
    before = dict(state)

    def fail(*_: object) -> None:
        raise RuntimeError("patient 4711 is 63 years old")

    with monkeypatch.context() as broken:
        broken.setattr(Trainer, "train", fail)
        reply = member.answer(leg(model()))

    assert reply == encode(Refusal(code=RefusalCode.INTERNAL_ERROR))
    assert b"4711" not in reply
    assert "patient 4711" in caplog.text  # the operator finds it in the local log
    assert state == before
    assert member.answer(leg(model())) == hospital().answer(leg(model()))


def test_what_a_sender_writes_cannot_pass_for_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forged = "x\nnorth: agreed to everything\x1b[2J\u202e" + "y" * 10_000
    settings = descriptor(experiment="e2", training=TRAINING | {"model": forged})

    with caplog.at_level(logging.WARNING):
        reply = Hospital(NAME, SHARE, {}).answer(set_up(settings))

    assert decode_reply(reply) == Refusal(code=D)
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < 500


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.randoms(use_true_random=False))
def test_whatever_comes_in_is_answered_and_a_refusal_changes_nothing(
    noise: bytes, random: Random
) -> None:
    state: dict[str, bytes] = {}
    member = hospital(state, **OPTIMIZERS["momentum kept"])
    honest = [
        leg(model(), recipient=None),
        set_up(descriptor(experiment="e2")),
        encode(Close(experiment="e1", payload=model().to_bytes())),
    ]
    for data in (*honest, noise):
        place, removed = random.randrange(len(data) + 1), random.randrange(3)
        before = dict(state)
        reply = decode_reply(member.answer(data[:place] + noise[:3] + data[place + removed :]))
        if isinstance(reply, Refusal):
            assert reply.code is not RefusalCode.INTERNAL_ERROR
            assert state == before


# --- held-out data --------------------------------------------------------------------------------


def held_out_by_hand(state: ModelState, share: Share) -> tuple[float, float]:
    """Return loss and accuracy of the two-layer network, computed in NumPy."""
    p: Any = state.parameters
    x = share.held_out.features.astype(np.float64).reshape(len(share.held_out), -1)
    hidden = np.maximum(x @ p["linear1.weight"].T + p["linear1.bias"], 0)
    scores = hidden @ p["output.weight"].T + p["output.bias"]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    right = chances[np.arange(len(x)), share.held_out.labels]
    accuracy = float((scores.argmax(axis=1) == share.held_out.labels).mean())
    return float(-np.log(right).mean()), accuracy


@pytest.mark.parametrize("recipient", ["east", None])
def test_an_aggregate_is_evaluated_as_it_came_on_held_out_data(recipient: str | None) -> None:
    reply = trained(hospital().answer(leg(model(), recipient=recipient)))
    loss, accuracy = held_out_by_hand(model(), SHARE)

    assert reply.held_out_loss == pytest.approx(loss, rel=1e-12)
    assert reply.held_out_accuracy == pytest.approx(accuracy, abs=1e-12)


def test_a_handed_over_model_is_not_evaluated() -> None:
    # Its figures would tell the coordinator about a model it must not see.
    reply = trained(hospital().answer(leg(model(), carries=Carries.ENVELOPE)))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)


def test_a_hospitals_own_first_model_is_not_evaluated() -> None:
    member = Hospital(NAME, SHARE, {})
    member.answer(set_up(descriptor(init="own")))

    reply = trained(member.answer(leg(carries=Carries.NOTHING)))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)


def test_the_final_model_is_evaluated_and_the_experiment_forgotten() -> None:
    state: dict[str, bytes] = {}
    member = hospital(state, **OPTIMIZERS["adam kept"])
    member.answer(leg(model(), recipient=None))
    loss, accuracy = held_out_by_hand(model(), SHARE)

    reply = decode_reply(member.answer(encode(Close(experiment="e1", payload=model().to_bytes()))))

    assert isinstance(reply, Closed)
    assert reply.held_out_loss == pytest.approx(loss, rel=1e-12)
    assert reply.held_out_accuracy == pytest.approx(accuracy, abs=1e-12)
    assert state == {}
    assert member.answer(leg(model())) == encode(Refusal(code=U))


def test_a_hospital_that_holds_no_data_back_gives_no_figures() -> None:
    member = hospital(share=Share(NAME, SHARE.train, examples(0, seed=3)))

    reply = trained(member.answer(leg(model())))
    closed = decode_reply(member.answer(encode(Close(experiment="e1", payload=model().to_bytes()))))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)
    assert closed == Closed(held_out_loss=None, held_out_accuracy=None)


# --- what it computes -----------------------------------------------------------------------------


def test_a_leg_is_plain_gradient_descent_on_the_rounds_own_batches() -> None:
    reply = trained(hospital().answer(leg(model(), first_round=7, local_rounds=3)))

    streams = TrainingStreams(bytes(32), 1)  # north is second on the roster
    w = {name: torch.tensor(array) for name, array in model().parameters.items()}
    losses = []
    for round_ in (7, 8, 9):
        rows = streams.batch(round_, 8, 3)
        x = torch.tensor(SHARE.train.features[rows], dtype=torch.float64).flatten(1)
        for tensor in w.values():
            tensor.requires_grad_()
        hidden = torch.relu(x @ w["linear1.weight"].T + w["linear1.bias"])
        scores = hidden @ w["output.weight"].T + w["output.bias"]
        loss = nn.functional.cross_entropy(scores, torch.tensor(SHARE.train.labels[rows]))
        gradients = torch.autograd.grad(loss, list(w.values()))
        w = {n: (t - 0.1 * g).detach() for (n, t), g in zip(w.items(), gradients, strict=True)}
        losses.append(float(loss.detach()))
    sent = ModelState.from_bytes(reply.payload)
    for name, tensor in w.items():
        np.testing.assert_allclose(sent.parameters[name], tensor.numpy(), rtol=1e-12)
    assert reply.loss == pytest.approx(np.mean(losses), rel=1e-12)


def test_its_own_first_model_follows_from_seed_and_position_alone() -> None:
    agreed = set_up(descriptor(init="own", roster=("east", NAME)))
    sent = []
    for first_round in (0, 4):
        member = Hospital(NAME, SHARE, {})
        member.answer(agreed)
        request = leg(carries=Carries.NOTHING, first_round=first_round, local_rounds=1)
        sent.append(ModelState.from_bytes(trained(member.answer(request)).payload))
    expected = build(
        "mlp",
        shape=SHAPE,
        classes=CLASSES,
        options={"hidden": [4]},
        seed=TrainingStreams(bytes(32), 1).init_seed(),
    )
    # One small step away from it, in another direction in another round.
    first = expected.state_dict()["output.weight"].double().numpy()
    distances = [np.abs(each.parameters["output.weight"] - first).max() for each in sent]
    assert all(0 < distance < 0.1 for distance in distances)
    assert sent[0].to_bytes() != sent[1].to_bytes()


# --- it repeats itself ----------------------------------------------------------------------------


def conversation(**chosen: Any) -> list[Callable[[Hospital], bytes]]:
    """Return legs of every kind, each asking with what came of the ones before."""
    aggregate, handed = model(**chosen), {"sent": model(**chosen)}

    def ask(request: bytes) -> Callable[[Hospital], bytes]:
        return lambda member: member.answer(request)

    def ask_with_envelope(number: int, recipient: str | None) -> Callable[[Hospital], bytes]:
        def answer(member: Hospital) -> bytes:
            fields = {"leg": number, "first_round": 2 * number, "recipient": recipient}
            return member.answer(leg(handed["sent"], carries=Carries.ENVELOPE, **fields))

        return answer

    def first(member: Hospital) -> bytes:
        reply = member.answer(leg(aggregate, leg=1, first_round=2))
        handed["sent"] = ModelState.from_bytes(trained(reply).payload)
        return reply

    return [
        first,
        ask_with_envelope(2, "east"),
        ask_with_envelope(3, None),
        ask(leg(aggregate, leg=4, first_round=8, recipient=None)),
        ask(leg(aggregate, leg=5, first_round=10, recipient=None)),
        ask(leg(aggregate, leg=6, first_round=12, recipient="east")),
        ask_with_envelope(7, None),
    ]


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_same_request_again_gives_the_same_bytes(chosen: dict[str, Any]) -> None:
    once, again = hospital(**chosen), hospital(**chosen)

    for ask in conversation(**chosen):
        expected = ask(once)
        assert isinstance(decode_reply(expected), Trained)
        assert [ask(again), ask(again), ask(again)] == [expected] * 3


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_agreeing_again_to_the_same_changes_nothing(chosen: dict[str, Any]) -> None:
    state: dict[str, bytes] = {}
    member, undisturbed = hospital(state, **chosen), hospital(**chosen)
    agreed = set_up(descriptor(training=TRAINING | chosen))

    for ask in conversation(**chosen):
        before = dict(state)
        assert decode_reply(member.answer(agreed)) == Announcement(examples=8)
        assert state == before
        assert ask(member) == ask(undisturbed)


def test_another_experiment_begins_with_nothing_of_the_last() -> None:
    state: dict[str, bytes] = {}
    chosen = TRAINING | OPTIMIZERS["adam kept"] | {"proximal-mu": 0.5}
    member = Hospital(NAME, SHARE, state)
    member.answer(set_up(descriptor(training=chosen)))
    for ask in conversation():
        ask(member)
    assert len(state) > 1

    other = descriptor(experiment="e2", training=chosen)
    member.answer(set_up(other))

    assert state == {"descriptor": other.to_bytes()}
    assert member.answer(leg(model())) == encode(Refusal(code=U))


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_results_do_not_depend_on_how_rounds_are_grouped(chosen: dict[str, Any]) -> None:
    start = model(**chosen)
    whole = trained(hospital(**chosen).answer(leg(start, first_round=3, local_rounds=6)))

    member, losses = hospital(**chosen), []
    payload, carries = start.to_bytes(), Carries.AGGREGATE
    for number, round_ in enumerate(range(3, 9), start=1):
        request = leg(payload, leg=number, first_round=round_, local_rounds=1, carries=carries)
        step = trained(member.answer(request))
        payload, carries = step.payload, Carries.ENVELOPE
        losses.append(step.loss)

    assert payload == whole.payload
    assert whole.loss == pytest.approx(np.mean(losses), rel=1e-12)


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_all_it_remembers_is_bytes_in_its_store(chosen: dict[str, Any]) -> None:
    store: dict[str, bytes] = {}
    lasting = hospital(**chosen)
    hospital(store, **chosen)

    for ask in conversation(**chosen):
        assert all(type(key) is str and type(value) is bytes for key, value in store.items())
        store = {key: bytes(value) for key, value in store.items()}
        assert ask(Hospital(NAME, SHARE, store)) == ask(lasting)


def test_a_store_does_not_grow_with_the_legs() -> None:
    store: dict[str, bytes] = {}
    member = hospital(store, **OPTIMIZERS["adam kept"], **{"proximal-mu": 0.5})
    sizes = []
    for number in range(1, 8):
        member.answer(leg(model(), leg=number, first_round=number, recipient=None))
        sizes.append(sum(len(value) for value in store.values()))
    assert len(set(sizes[1:])) == 1


@pytest.mark.parametrize("chosen", [OPTIMIZERS["momentum kept"], OPTIMIZERS["adam kept"]])
def test_kept_optimizer_state_is_that_of_the_model_last_sent(chosen: dict[str, Any]) -> None:
    member, reset = hospital(**chosen), hospital(**chosen | {"optimizer-state": "reset"})
    envelope = ModelState.from_bytes(trained(member.answer(leg(model()))).payload)
    twin = hospital(**chosen)  # answers the aggregation leg with a hand-over, to see its state
    at_the_end = {"leg": 2, "first_round": 2, "carries": Carries.ENVELOPE}
    seen = ModelState.from_bytes(trained(twin.answer(leg(envelope, **at_the_end))).payload)
    member.answer(leg(envelope, **at_the_end, recipient=None))

    after = leg(model(), leg=3, first_round=4)
    continued = leg(
        ModelState(model().parameters, {}, seen.optimizer),
        leg=3,
        first_round=4,
        carries=Carries.ENVELOPE,
    )

    expected = trained(twin.answer(continued)).payload
    assert trained(member.answer(after)).payload == expected
    assert trained(reset.answer(after)).payload != expected


def test_two_experiments_of_one_process_do_not_mix() -> None:
    # Hospitals of a process share one network to train in.
    other = Share(NAME, examples(8, seed=7), examples(5, seed=8))
    one, two = hospital(momentum=0.9), hospital(share=other, momentum=0.9)
    alone = [
        hospital(momentum=0.9).answer(leg(model())),
        hospital(share=other, momentum=0.9).answer(leg(model())),
    ]
    one.answer(leg(model(), first_round=5))
    two.answer(leg(model(), first_round=9))

    assert [one.answer(leg(model())), two.answer(leg(model()))] == alone
    assert alone[0] != alone[1]


def arrays_equal(one: Arrays, other: Arrays) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one.keys() | other.keys())


def test_running_statistics_travel_and_advance_with_the_model() -> None:
    start = model(**WITH_BUFFERS)

    reply = trained(hospital(**WITH_BUFFERS).answer(leg(start, local_rounds=3)))
    sent = ModelState.from_bytes(reply.payload)

    assert int(sent.buffers["norm1.num_batches_tracked"]) == 3
    assert sent.buffers["norm1.num_batches_tracked"].dtype == np.int64
    assert not arrays_equal(sent.buffers, start.buffers)
