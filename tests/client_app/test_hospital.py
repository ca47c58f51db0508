"""The hospital: what it refuses, that refusing changes nothing, and that it repeats itself."""

import hashlib
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

from client_app.audit import verify_lines
from client_app.hospital import Hospital
from client_app.policy import Policy
from client_app.store import MappingStore
from learning.data import Examples, Share
from learning.models import build
from learning.trainer import Trainer
from protocol.audit import AuditHead
from protocol.bundle import from_bundle, to_bundle
from protocol.descriptor import Descriptor
from protocol.keys import Identity, SealingKey
from protocol.membership import announce
from protocol.messages import (
    Announcement,
    Carries,
    Close,
    Closed,
    ExchangeShares,
    Hello,
    Introduction,
    OpenShares,
    Ready,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    SetUp,
    Shares,
    Trained,
    TrainLeg,
    decode_reply,
    encode,
    sign_request,
)
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams
from protocol.roster import Member, Roster

NAMES = ("east", "north", "south")
NAME, SHAPE, CLASSES, ROUNDS = "north", (1, 6, 6), 3, 40
IDENTITIES = {name: Identity.from_bytes(bytes([n] * 32)) for n, name in enumerate(NAMES, start=1)}
COORDINATOR, STRANGER = Identity.from_bytes(bytes([9] * 32)), Identity.from_bytes(bytes([8] * 32))
ROSTER = Roster.make(
    "study", 1, COORDINATOR.public, [Member(n, i.public) for n, i in IDENTITIES.items()]
)
# Nothing rounded away and nothing kept back, so that figures can be compared.
OPEN_POLICY: dict[str, Any] = {
    "unsealed": True,
    "metric-decimals": 12,
    "max-share-per-recipient": 1.0,
}
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
    "half the bytes": {"precision": "float32", "wire-dtype": "bfloat16", "momentum": 0.9},
}


def examples(count: int, seed: int) -> Examples:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    return Examples(rng.normal(size=(count, *SHAPE)).astype(np.float32), rng.permutation(labels))


SHARES = {name: Share(name, examples(8, n), examples(5, 10 + n)) for n, name in enumerate(NAMES)}


class RecordingStore(MappingStore):
    """A store that keeps its audit lines, too."""

    def __init__(self, mapping: dict[str, bytes]) -> None:
        super().__init__(mapping)
        self.lines: list[bytes] = []

    def append_audit(self, line: bytes) -> None:
        self.lines.append(line)


def member(
    name: str = NAME,
    memory: dict[str, bytes] | None = None,
    *,
    share: Share | None = None,
    policy: dict[str, Any] | None = None,
) -> Hospital:
    """Return a hospital that has agreed to nothing yet."""
    return Hospital(
        name,
        share or SHARES[name],
        MappingStore({} if memory is None else memory),
        identity=IDENTITIES[name],
        roster=ROSTER,
        policy=Policy.parse(OPEN_POLICY | (policy or {}), source="test"),
    )


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
        "sealed": False,
        "roster": ROSTER.digest,
    }
    return Descriptor(**(fields | changes))


def signed(request: Request) -> bytes:
    return sign_request(request, COORDINATOR)


def set_up(agreed: Descriptor) -> bytes:
    return signed(SetUp(experiment=agreed.experiment, payload=agreed.to_bytes()))


def hospital(
    memory: dict[str, bytes] | None = None, *, share: Share | None = None, **training: Any
) -> Hospital:
    """Return a hospital that has agreed to an experiment with these training settings."""
    here = member(memory=memory, share=share)
    reply = decode_reply(here.answer(set_up(descriptor(training=TRAINING | training))))
    assert isinstance(reply, Announcement)
    return here


def model(**training: Any) -> ModelState:
    """Return the network's first state, taken from the registry and torch alone."""
    chosen = TRAINING | training
    network = build(
        chosen["model"],
        shape=SHAPE,
        classes=CLASSES,
        options=json.loads(chosen["model-options"]),
        seed=5,
    ).to(getattr(torch, chosen["precision"]))
    trained = {name for name, _ in network.named_parameters()}
    arrays = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
    state = ModelState(
        {name: array for name, array in arrays.items() if name in trained},
        {name: array for name, array in arrays.items() if name not in trained},
    )
    wire = chosen.get("wire-dtype", "same")
    return ModelState.from_bytes(state.to_bytes(wire=wire), wire=wire)


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
    return signed(TrainLeg(**(fields | changes), payload=data))


def close(payload: bytes | ModelState, experiment: str = "e1") -> bytes:
    data = payload.to_bytes() if isinstance(payload, ModelState) else payload
    return signed(Close(experiment=experiment, payload=data))


def plain(reply: bytes) -> Reply:
    """Return a reply without the head of the audit trail, which never stands still."""
    message = decode_reply(reply)
    assert message.audit is not None
    return message.model_copy(update={"audit": None})


def trained(reply: bytes) -> Trained:
    message = decode_reply(reply)
    assert isinstance(message, Trained), message
    return message


def remembered(memory: dict[str, bytes]) -> dict[str, bytes]:
    """Return all that a hospital remembers but how long its audit trail is."""
    return {name: value for name, value in memory.items() if name != "audit-head"}


# --- what it agrees to ----------------------------------------------------------------------------


def test_it_says_its_name() -> None:
    assert plain(member().answer(signed(Hello()))) == Introduction(hospital=NAME)


def test_it_has_the_identity_that_the_roster_pins() -> None:
    policy = Policy.parse({}, source="test")
    with pytest.raises(ValueError, match="north is not on the roster with this identity"):
        Hospital(
            NAME, SHARES[NAME], MappingStore({}), identity=STRANGER, roster=ROSTER, policy=policy
        )


def test_it_agrees_and_says_how_many_examples_it_trains_on() -> None:
    reply = plain(member().answer(set_up(descriptor())))

    assert isinstance(reply, Announcement)
    assert reply.examples == 8


def test_a_reply_says_nothing_of_the_hospital_but_what_the_format_has() -> None:
    # What travels must not name its sender: a recipient must not learn whose model it is.
    reply = trained(hospital(optimizer="adam").answer(leg(model())))
    sent = ModelState.from_bytes(reply.payload)

    assert NAME.encode() not in reply.payload
    assert set(sent.parameters) == set(model().parameters)
    assert {name.split("/")[0] for name in sent.optimizer} == {"m", "v", "step"}


# --- what it refuses ------------------------------------------------------------------------------


def changed(name: str, change: Callable[[Any], Any]) -> ModelState:
    return ModelState(model().parameters | {name: change(model().parameters[name])})


def with_value(value: float) -> ModelState:
    return changed("output.bias", lambda array: np.append(array[:-1], value))


def adam(**changes: Any) -> ModelState:
    optimizer = {
        f"{moment}/{name}": np.zeros_like(array)
        for moment in "mv"
        for name, array in model().parameters.items()
    } | {"step": np.array(0)}
    left = {name: array for name, array in (optimizer | changes).items() if array is not None}
    return ModelState(model().parameters, {}, left)


def second(**changes: Any) -> bytes:
    return set_up(descriptor(**({"experiment": "e2"} | changes)))


def training(**changes: Any) -> bytes:
    wanted = {key.replace("_", "-"): value for key, value in changes.items()}
    return second(training=TRAINING | wanted)


def raw_set_up(payload: bytes) -> bytes:
    return signed(SetUp(experiment="e2", payload=payload))


def forged(request: bytes, identity: Identity = STRANGER, purpose: str = "request") -> bytes:
    body = request[:-64]
    return body + identity.sign(purpose, hashlib.sha256(body).digest())


def flipped(data: bytes, place: int) -> bytes:
    changed_data = bytearray(data)
    changed_data[place] ^= 1
    return bytes(changed_data)


Code = RefusalCode
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
        lambda: signed(ExchangeShares(experiment="e9")),
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
        lambda: signed(ExchangeShares(experiment="e1", payload=b"\xff")),
    ),
    "keys of nobody": (Code.KEYS_REFUSED, lambda: signed(ExchangeShares(experiment="e1"))),
    "shares before the keys": (
        Code.NOT_SET_UP,
        lambda: signed(OpenShares(experiment="e1", payload=to_bundle({"east": b"x"}))),
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
    here = member(share=Share(NAME, SHARES[NAME].train, more))

    assert plain(here.answer(set_up(descriptor()))) == Refusal(code=Code.DESCRIPTOR_REFUSED)


def test_before_anything_is_agreed_every_leg_is_refused_unread() -> None:
    memory: dict[str, bytes] = {}
    here = member(memory=memory)

    for payload in (model(), b"junk"):
        assert plain(here.answer(leg(payload))) == Refusal(code=Code.UNKNOWN_EXPERIMENT)
    assert remembered(memory) == {}


POLICIES: dict[str, dict[str, Any]] = {
    "another model": {"models": ["linear"]},
    "more members": {"minimum-cohort": 4},
    "other members": {"members": ["east", "north"]},
    "more examples": {"minimum-local-items": 9},
    "larger batches": {"minimum-batch": 4},
    "fewer rounds": {"maximum-rounds": ROUNDS - 1},
    "smaller steps": {"maximum-learning-rate": 0.09},
    "sealed models": {"unsealed": False},
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
    here = member(policy={"max-share-per-recipient": 0.2})
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


def test_a_memory_older_than_the_worlds_is_noticed() -> None:
    memory: dict[str, bytes] = {}
    here = hospital(memory)
    backup = dict(memory)
    seen = decode_reply(here.answer(leg(model()))).audit

    restored = member(memory=backup)
    request = leg(model(), leg=2, seen=seen)

    assert plain(restored.answer(request)) == Refusal(code=Code.ROLLED_BACK)
    assert trained(here.answer(request))


def test_a_head_that_the_hospital_did_not_sign_says_nothing() -> None:
    here = hospital()
    invented = AuditHead.signed(STRANGER, 10_000, bytes(32))
    broken = AuditHead(sequence=10_000, digest="0" * 64, signature="0" * 128)

    assert trained(here.answer(leg(model(), leg=1, seen=invented)))
    assert trained(here.answer(leg(model(), leg=2, seen=broken)))


def test_an_internal_error_gives_only_its_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory: dict[str, bytes] = {}
    here = hospital(memory)
    before = dict(memory)

    def fail(*_: object) -> None:
        raise RuntimeError("patient 4711 is 63 years old")

    with monkeypatch.context() as broken:
        broken.setattr(Trainer, "train", fail)
        reply = here.answer(leg(model()))

    assert plain(reply) == Refusal(code=Code.INTERNAL_ERROR)
    assert b"4711" not in reply
    assert "patient 4711" in caplog.text  # the operator finds it in the local log
    assert remembered(memory) == remembered(before)
    assert plain(here.answer(leg(model()))) == plain(hospital().answer(leg(model())))


def test_what_a_sender_writes_cannot_pass_for_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = "x\nnorth: agreed to everything\x1b[2J\u202e"
    header = json.dumps({"kind": "hello", lines: 1, "y" * 10_000: 2}).encode()
    unknown = b"FDC1" + len(header).to_bytes(4, "big") + header + bytes(64)

    with caplog.at_level(logging.WARNING):
        replies = [member().answer(unknown), member().answer(training(model=lines * 1_000))]

    assert plain(replies[0]) == Refusal(code=Code.MALFORMED)
    assert plain(replies[1]) == Refusal(code=Code.DESCRIPTOR_REFUSED)
    assert "agreed to everything" in caplog.records[0].getMessage()
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert len(record.getMessage()) < 500


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60), st.randoms(use_true_random=False))
def test_whatever_comes_in_is_answered_and_a_refusal_changes_nothing(
    noise: bytes, random: Random
) -> None:
    memory: dict[str, bytes] = {}
    here = hospital(memory, **OPTIMIZERS["momentum kept"])
    bodies = [leg(model(), recipient=None), second(), close(model())]
    for data in (*(body[:-64] for body in bodies), noise):
        place, removed = random.randrange(len(data) + 1), random.randrange(3)
        mutated = data[:place] + noise[:3] + data[place + removed :]
        before = dict(memory)
        # With the coordinator's own signature: hostile is what it signed.
        reply = decode_reply(here.answer(forged(mutated + bytes(64), COORDINATOR)))
        if isinstance(reply, Refusal):
            assert reply.code is not Code.INTERNAL_ERROR
            assert remembered(memory) == remembered(before)


# --- keys and envelopes ---------------------------------------------------------------------------


class Study:
    """Three hospitals that have made the keys of a sealed experiment."""

    def __init__(self, **chosen: Any) -> None:
        self.memories: dict[str, dict[str, bytes]] = {name: {} for name in NAMES}
        self.members = {name: member(name, self.memories[name]) for name in NAMES}
        agreed = set_up(descriptor(sealed=True, training=TRAINING | chosen))
        self.announced = self.ask_all(dict.fromkeys(NAMES, agreed), Announcement)
        request = signed(ExchangeShares(experiment="e1", payload=to_bundle(self.announced)))
        shares = self.ask_all(dict.fromkeys(NAMES, request), Shares)
        self.sealed = {name: from_bundle(bundle) for name, bundle in shares.items()}

    def make_keys(self) -> "Study":
        requests = {
            name: signed(OpenShares(experiment="e1", payload=to_bundle(self.shares_for(name))))
            for name in NAMES
        }
        self.tags = []
        for name, request in requests.items():
            reply = decode_reply(self.members[name].answer(request))
            assert isinstance(reply, Ready)
            self.tags.append(reply.confirmation)
        return self

    def shares_for(self, name: str) -> dict[str, bytes]:
        return {sender: self.sealed[sender][name] for sender in NAMES if sender != name}

    def ask_all(self, requests: dict[str, bytes], kind: type[Reply]) -> dict[str, bytes]:
        replies = {name: decode_reply(self.members[name].answer(r)) for name, r in requests.items()}
        assert all(isinstance(reply, kind) for reply in replies.values()), replies
        return {name: reply.payload for name, reply in replies.items()}

    def hand_over(self, sender: str, recipient: str, number: int = 1) -> bytes:
        """Have `sender` train leg `number` and return the envelope for `recipient`."""
        reply = trained(self.members[sender].answer(leg(model(), leg=number, recipient=recipient)))
        assert reply.sealed
        return reply.payload


def envelope(payload: bytes, number: int = 2, **changes: Any) -> bytes:
    fields = {"leg": number, "first_round": 2, "carries": Carries.ENVELOPE, "sealed_in": 1}
    return leg(payload, **(fields | {"recipient": "south"} | changes))


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


WRONG_ENVELOPES: dict[str, tuple[RefusalCode, Callable[[Study], tuple[str, bytes]]]] = {
    "altered": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(flipped(s.hand_over("east", "north"), -1))),
    ),
    "altered at its beginning": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(flipped(s.hand_over("east", "north"), 0))),
    ),
    "cut off": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(s.hand_over("east", "north")[:-1])),
    ),
    "empty": (Code.ENVELOPE_REFUSED, lambda s: ("north", envelope(b""))),
    "a readable model": (Code.ENVELOPE_REFUSED, lambda s: ("north", envelope(model().to_bytes()))),
    "for another hospital": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("south", envelope(s.hand_over("east", "north"))),
    ),
    "of another leg": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(s.hand_over("east", "north"), number=3, sealed_in=2)),
    ),
    "of another experiment's keys": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(Study().make_keys().hand_over("east", "north"))),
    ),
    "of no leg": (
        Code.MALFORMED,
        lambda s: ("north", envelope(s.hand_over("east", "north"), sealed_in=None)),
    ),
    "of this very leg": (
        Code.MALFORMED,
        lambda s: ("north", envelope(s.hand_over("east", "north"), number=1, sealed_in=1)),
    ),
    "of the leg of the shares": (
        Code.MALFORMED,
        lambda s: ("north", envelope(s.hand_over("east", "north"), sealed_in=0)),
    ),
    "a share instead of a model": (
        Code.MALFORMED,
        lambda s: ("north", envelope(s.sealed["east"]["north"], sealed_in=0)),
    ),
    "opened before": (Code.REPLAYED, lambda s: ("north", _opened_before(s))),
}


def _opened_before(study: Study) -> bytes:
    sealed = study.hand_over("east", "north")
    assert trained(study.members["north"].answer(envelope(sealed)))
    return envelope(sealed, number=3)


@pytest.mark.parametrize(("code", "case"), WRONG_ENVELOPES.values(), ids=WRONG_ENVELOPES)
def test_an_envelope_that_does_not_belong_here_is_refused_and_nothing_changed(
    code: RefusalCode, case: Callable[[Study], tuple[str, bytes]]
) -> None:
    study = Study().make_keys()
    name, request = case(study)
    before = dict(study.memories[name])

    assert plain(study.members[name].answer(request)) == Refusal(code=code)

    assert remembered(study.memories[name]) == remembered(before)
    honest = study.hand_over("south" if name != "south" else "east", name, number=5)
    assert trained(study.members[name].answer(envelope(honest, number=6, sealed_in=5)))


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
    study = Study()  # shares were sent, and none opened

    for request in (leg(model()), envelope(bytes(2000))):
        reply = study.members["north"].answer(request)
        assert plain(reply) == Refusal(code=Code.NOT_SET_UP)


def _with(study: Study, name: str, data: bytes) -> bytes:
    bundle = to_bundle(study.announced | {name: data})
    return signed(ExchangeShares(experiment="e1", payload=bundle))


def _announced(name: str, identity: Identity, experiment: str = "e1") -> bytes:
    key = SealingKey.generate()
    return announce(identity, key, name=name, experiment=experiment, roster=ROSTER).to_bytes()


WRONG_KEYS: dict[str, Callable[[Study], bytes]] = {
    "announced by the coordinator": lambda s: _with(s, "east", _announced("east", COORDINATOR)),
    "announced by another member": lambda s: _with(
        s, "east", _announced("east", IDENTITIES["south"])
    ),
    "announced for another experiment": lambda s: _with(
        s, "east", _announced("east", IDENTITIES["east"], "e2")
    ),
    "of another hospital": lambda s: _with(s, "east", s.announced["south"]),
    "cut off": lambda s: _with(s, "east", s.announced["east"][:-1]),
    "of a stranger more": lambda s: _with(s, "mallory", _announced("mallory", STRANGER)),
    "of a member less": lambda s: signed(
        ExchangeShares(
            experiment="e1",
            payload=to_bundle({n: d for n, d in s.announced.items() if n != "east"}),
        )
    ),
    "own, but never made here": lambda s: _with(s, NAME, _announced(NAME, IDENTITIES[NAME])),
}


@pytest.mark.parametrize("case", WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_announcements_that_are_not_the_rosters_make_no_keys(
    case: Callable[[Study], bytes],
) -> None:
    study = Study()
    memory: dict[str, bytes] = {}
    late = member(memory=memory)
    agreed = decode_reply(late.answer(set_up(descriptor(sealed=True))))
    if case is not WRONG_KEYS["own, but never made here"]:
        study.announced[NAME] = agreed.payload
    before = dict(memory)

    assert plain(late.answer(case(study))) == Refusal(code=Code.KEYS_REFUSED)

    assert remembered(memory) == remembered(before)
    study.announced[NAME] = agreed.payload
    assert isinstance(decode_reply(late.answer(_with(study, NAME, agreed.payload))), Shares)


WRONG_SHARES: dict[str, Callable[[dict[str, bytes]], dict[str, bytes]]] = {
    "altered": lambda shares: shares | {"east": flipped(shares["east"], -1)},
    "one less": lambda shares: {"east": shares["east"]},
    "one more": lambda shares: shares | {NAME: shares["east"]},
    "exchanged": lambda shares: {"east": shares["south"], "south": shares["east"]},
    "one twice": lambda shares: {"east": shares["east"], "south": shares["east"]},
    "empty": lambda shares: shares | {"east": b""},
}


@pytest.mark.parametrize("change", WRONG_SHARES.values(), ids=WRONG_SHARES)
def test_shares_that_are_not_each_members_make_no_key(
    change: Callable[[dict[str, bytes]], dict[str, bytes]],
) -> None:
    study = Study()
    shares, memory = study.shares_for(NAME), study.memories[NAME]
    before = dict(memory)

    wrong = signed(OpenShares(experiment="e1", payload=to_bundle(change(shares))))
    assert plain(study.members[NAME].answer(wrong)) == Refusal(code=Code.KEYS_REFUSED)

    assert remembered(memory) == remembered(before)
    assert study.make_keys().tags


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
    loss, accuracy = held_out_by_hand(model(), SHARES[NAME])

    assert reply.held_out_loss == pytest.approx(loss, rel=1e-9)
    assert reply.held_out_accuracy == pytest.approx(accuracy, abs=1e-9)


def test_a_handed_over_model_is_not_evaluated() -> None:
    # Its figures would tell the coordinator about a model it must not see.
    reply = trained(hospital().answer(leg(model(), carries=Carries.ENVELOPE)))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)


def test_a_hospitals_own_first_model_is_not_evaluated() -> None:
    here = member()
    here.answer(set_up(descriptor(init="own")))

    reply = trained(here.answer(leg(carries=Carries.NOTHING)))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)


def test_the_final_model_is_evaluated_on_held_out_data() -> None:
    loss, accuracy = held_out_by_hand(model(), SHARES[NAME])

    reply = plain(hospital().answer(close(model())))

    assert isinstance(reply, Closed)
    assert reply.held_out_loss == pytest.approx(loss, rel=1e-9)
    assert reply.held_out_accuracy == pytest.approx(accuracy, abs=1e-9)


@pytest.mark.parametrize("held_out", [0, 4])
def test_figures_rest_on_enough_examples_or_are_not_given(held_out: int) -> None:
    here = hospital(share=Share(NAME, SHARES[NAME].train, examples(held_out, seed=3)))

    reply = trained(here.answer(leg(model())))
    closed = plain(here.answer(close(model())))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)
    assert closed == Closed(held_out_loss=None, held_out_accuracy=None)


def test_figures_leave_rounded_as_the_policy_says() -> None:
    exact = trained(hospital().answer(leg(model())))
    here = member(policy={"metric-decimals": 2})
    here.answer(set_up(descriptor()))

    rounded = trained(here.answer(leg(model())))

    for name in ("loss", "accuracy", "held_out_loss", "held_out_accuracy"):
        assert getattr(rounded, name) == round(getattr(exact, name), 2)
    assert rounded.loss != exact.loss


def test_figures_that_the_policy_keeps_do_not_leave() -> None:
    here = member(policy={"metrics": []})

    announced = plain(here.answer(set_up(descriptor())))
    reply = trained(here.answer(leg(model())))
    closed = plain(here.answer(close(model())))

    assert isinstance(announced, Announcement)
    assert announced.examples is None
    assert {reply.loss, reply.accuracy, reply.held_out_loss, reply.held_out_accuracy} == {None}
    assert closed == Closed(held_out_loss=None, held_out_accuracy=None)


# --- what it computes -----------------------------------------------------------------------------


def test_a_leg_is_plain_gradient_descent_on_the_rounds_own_batches() -> None:
    reply = trained(hospital().answer(leg(model(), first_round=7, local_rounds=3)))

    data = SHARES[NAME].train
    streams = TrainingStreams(bytes(32), 1)  # north is second on the roster
    w = {name: torch.tensor(array) for name, array in model().parameters.items()}
    losses = []
    for round_ in (7, 8, 9):
        rows = streams.batch(round_, 8, 3)
        x = torch.tensor(data.features[rows], dtype=torch.float64).flatten(1)
        for tensor in w.values():
            tensor.requires_grad_()
        hidden = torch.relu(x @ w["linear1.weight"].T + w["linear1.bias"])
        scores = hidden @ w["output.weight"].T + w["output.bias"]
        loss = nn.functional.cross_entropy(scores, torch.tensor(data.labels[rows]))
        gradients = torch.autograd.grad(loss, list(w.values()))
        w = {n: (t - 0.1 * g).detach() for (n, t), g in zip(w.items(), gradients, strict=True)}
        losses.append(loss.item())
    sent = ModelState.from_bytes(reply.payload)
    for name, tensor in w.items():
        np.testing.assert_allclose(sent.parameters[name], tensor.numpy(), rtol=1e-12)
    assert reply.loss == pytest.approx(np.mean(losses), rel=1e-9)


def test_its_own_first_model_follows_from_seed_and_position_alone() -> None:
    sent = []
    for first_round in (0, 4):
        here = member()
        here.answer(set_up(descriptor(init="own")))
        request = leg(carries=Carries.NOTHING, first_round=first_round, local_rounds=1)
        sent.append(ModelState.from_bytes(trained(here.answer(request)).payload))
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


def test_running_statistics_travel_and_advance_with_the_model() -> None:
    start = model(**WITH_BUFFERS)

    reply = trained(hospital(**WITH_BUFFERS).answer(leg(start, local_rounds=3)))
    sent = ModelState.from_bytes(reply.payload)

    assert int(sent.buffers["norm1.num_batches_tracked"]) == 3
    assert sent.buffers["norm1.num_batches_tracked"].dtype == np.int64
    assert not np.array_equal(
        sent.buffers["norm1.running_mean"], start.buffers["norm1.running_mean"]
    )


def test_what_is_aggregated_has_no_optimizer_state() -> None:
    for chosen in OPTIMIZERS.values():
        reply = trained(hospital(**chosen).answer(leg(_wired(chosen), recipient=None)))
        wire = chosen.get("wire-dtype", "same")
        assert ModelState.from_bytes(reply.payload, wire=wire).optimizer == {}


def _wired(chosen: dict[str, Any]) -> bytes:
    return model(**chosen).to_bytes(wire=chosen.get("wire-dtype", "same"))


# --- it repeats itself ----------------------------------------------------------------------------


def conversation(**chosen: Any) -> list[Callable[[Hospital], bytes]]:
    """Return legs of every kind; envelopes bring what came of the first leg."""
    aggregate, handed = _wired(chosen), {"sent": b""}

    def first(here: Hospital) -> bytes:
        reply = here.answer(leg(aggregate, leg=1, first_round=2))
        handed["sent"] = trained(reply).payload
        return reply

    def with_envelope(number: int, recipient: str | None) -> Callable[[Hospital], bytes]:
        fields = {"leg": number, "first_round": 2 * number, "recipient": recipient}
        return lambda here: here.answer(leg(handed["sent"], carries=Carries.ENVELOPE, **fields))

    def with_aggregate(number: int, recipient: str | None) -> Callable[[Hospital], bytes]:
        fields = {"leg": number, "first_round": 2 * number, "recipient": recipient}
        return lambda here: here.answer(leg(aggregate, **fields))

    return [
        first,
        with_envelope(2, "east"),
        with_envelope(3, None),
        with_aggregate(4, None),
        with_aggregate(5, None),
        with_aggregate(6, "east"),
        with_envelope(7, None),
    ]


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_same_request_again_gives_the_same_bytes(chosen: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    once, again = hospital(**chosen), hospital(memory, **chosen)

    for ask in conversation(**chosen):
        expected = plain(ask(once))
        given = ask(again)
        before = dict(memory)
        assert isinstance(expected, Trained)
        assert plain(given) == expected
        assert [ask(again), ask(again)] == [given, given]
        assert remembered(memory) == remembered(before)


def test_a_sealed_answer_is_repeated_bit_by_bit() -> None:
    # Sealed a second time it would have other bytes, and the leg two envelopes.
    study = Study().make_keys()
    request = leg(model())

    first = study.members[NAME].answer(request)

    assert study.members[NAME].answer(request) == first
    other = Hospital(
        NAME,
        SHARES[NAME],
        MappingStore(study.memories[NAME]),
        identity=IDENTITIES[NAME],
        roster=ROSTER,
        policy=Policy.parse(OPEN_POLICY, source="test"),
    )
    assert other.answer(request) == first


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_agreeing_again_to_the_same_changes_nothing(chosen: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    here, undisturbed = member(memory=memory), hospital(**chosen)
    agreed = set_up(descriptor(training=TRAINING | chosen))
    announced = here.answer(agreed)

    for ask in conversation(**chosen):
        before = dict(memory)
        assert here.answer(agreed) == announced
        assert remembered(memory) == remembered(before)
        assert plain(ask(here)) == plain(ask(undisturbed))


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_results_do_not_depend_on_how_rounds_are_grouped(chosen: dict[str, Any]) -> None:
    start = _wired(chosen)
    whole = trained(hospital(**chosen).answer(leg(start, first_round=3, local_rounds=6)))

    here, losses = hospital(**chosen), []
    payload, carries = start, Carries.AGGREGATE
    for number, round_ in enumerate(range(3, 9), start=1):
        request = leg(payload, leg=number, first_round=round_, local_rounds=1, carries=carries)
        step = trained(here.answer(request))
        payload, carries = step.payload, Carries.ENVELOPE
        losses.append(step.loss)

    if "wire-dtype" in chosen:  # each hand-over rounds, so they agree in three digits only
        ours, theirs = (ModelState.from_bytes(p, wire="bfloat16") for p in (payload, whole.payload))
        for name, array in ours.parameters.items():
            np.testing.assert_allclose(array, theirs.parameters[name], atol=0.02)
    else:
        assert payload == whole.payload
        assert whole.loss == pytest.approx(np.mean(losses), rel=1e-9)


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_all_it_remembers_is_bytes_in_its_store(chosen: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    lasting = hospital(**chosen)
    hospital(memory, **chosen)

    for ask in conversation(**chosen):
        assert all(type(key) is str and type(value) is bytes for key, value in memory.items())
        memory = {key: bytes(value) for key, value in memory.items()}
        assert plain(ask(member(memory=memory))) == plain(ask(lasting))


def test_a_memory_does_not_grow_with_the_legs() -> None:
    memory: dict[str, bytes] = {}
    here = hospital(memory, **OPTIMIZERS["adam kept"], **{"proximal-mu": 0.5})
    sizes = []
    for number in range(1, 8):
        here.answer(leg(model(), leg=number, first_round=number, recipient=None))
        names = {name: len(value) for name, value in memory.items() if "answer" not in name}
        sizes.append(sum(names.values()))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("chosen", [OPTIMIZERS["momentum kept"], OPTIMIZERS["adam kept"]])
def test_kept_optimizer_state_is_that_of_the_model_last_sent(chosen: dict[str, Any]) -> None:
    here, reset = hospital(**chosen), hospital(**chosen | {"optimizer-state": "reset"})
    handed = trained(here.answer(leg(model()))).payload
    twin = hospital(**chosen)  # answers the aggregation leg with a hand-over, to see its state
    at_the_end = {"leg": 2, "first_round": 2, "carries": Carries.ENVELOPE}
    seen = ModelState.from_bytes(trained(twin.answer(leg(handed, **at_the_end))).payload)
    here.answer(leg(handed, **at_the_end, recipient=None))

    after = leg(model(), leg=3, first_round=4)
    continued = ModelState(model().parameters, {}, seen.optimizer)
    same = leg(continued, leg=3, first_round=4, carries=Carries.ENVELOPE)

    expected = trained(twin.answer(same)).payload
    assert trained(here.answer(after)).payload == expected
    assert trained(reset.answer(after)).payload != expected


def test_two_hospitals_of_one_process_do_not_mix() -> None:
    # Hospitals of a process share one network to train in.
    other = Share(NAME, examples(8, seed=7), examples(5, seed=8))
    one, two = hospital(momentum=0.9), hospital(share=other, momentum=0.9)
    last = leg(model(), leg=2)
    alone = [
        plain(hospital(momentum=0.9).answer(last)),
        plain(hospital(share=other, momentum=0.9).answer(last)),
    ]
    one.answer(leg(model(), first_round=5))
    two.answer(leg(model(), first_round=9))

    assert [plain(one.answer(last)), plain(two.answer(last))] == alone
    assert alone[0] != alone[1]


# --- the end of an experiment ---------------------------------------------------------------------


def test_a_closed_experiment_is_forgotten_with_its_keys() -> None:
    study = Study(optimizer="adam").make_keys()
    memory, here = study.memories[NAME], study.members[NAME]
    here.answer(leg(model()))
    secrets = [memory[f"e1/{name}"] for name in ("sealing-key", "member-key", "share")]

    assert isinstance(decode_reply(here.answer(close(model()))), Closed)

    assert set(memory) == {"audit-head", "e1/answer/close"}
    left = b"".join(memory.values())
    assert all(secret not in left for secret in secrets)
    assert here.answer(close(model())) == here.answer(close(model()))


def test_nothing_opens_a_closed_experiment_again() -> None:
    here = hospital()
    here.answer(leg(model()))
    here.answer(close(model()))

    # All of these were signed by the coordinator once, and anybody may have kept them.
    for request in (set_up(descriptor()), leg(model()), leg(model(), leg=2)):
        assert plain(here.answer(request)) == Refusal(code=Code.UNKNOWN_EXPERIMENT)
    other = close(with_value(3.0))
    assert plain(here.answer(other)) == Refusal(code=Code.CONFLICTING_REQUEST)
    assert isinstance(plain(here.answer(second())), Announcement)


def test_two_experiments_do_not_share_a_memory() -> None:
    memory: dict[str, bytes] = {}
    chosen = OPTIMIZERS["adam kept"] | {"proximal-mu": 0.5}
    here, alone = hospital(memory, **chosen), member()
    for ask in conversation(**chosen):
        ask(here)
    agreed = second(training=TRAINING | chosen)
    for each in (here, alone):
        assert isinstance(decode_reply(each.answer(agreed)), Announcement)

    request = leg(model(), experiment="e2")
    assert plain(here.answer(request)) == plain(alone.answer(request))
    here.answer(close(model(), "e2"))
    assert trained(here.answer(leg(model(), leg=8)))


# --- the audit trail ------------------------------------------------------------------------------


def test_every_request_leaves_one_line_and_the_reply_its_signed_head() -> None:
    store = RecordingStore({})
    here = Hospital(
        NAME,
        SHARES[NAME],
        store,
        identity=IDENTITIES[NAME],
        roster=ROSTER,
        policy=Policy.parse(OPEN_POLICY, source="test"),
    )
    requests = [
        signed(Hello()),
        set_up(descriptor()),
        leg(model()),
        leg(model()),
        b"noise",
        leg(with_value(np.nan), leg=2),
        close(model()),
    ]

    heads = [decode_reply(here.answer(request)).audit for request in requests]

    assert verify_lines(store.lines).broken is None
    entries = [json.loads(line) for line in store.lines]
    assert [entry["reply"]["kind"] for entry in entries] == [
        "introduction",
        "announcement",
        "trained",
        "repeated",
        "refusal",
        "refusal",
        "closed",
    ]
    # The answer that was repeated carries the head it was given with.
    assert [head.sequence for head in heads if head] == [1, 2, 3, 3, 5, 6, 7]
    assert all(head is not None and head.is_by(IDENTITIES[NAME].public) for head in heads)
