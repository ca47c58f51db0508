"""Legs in which an evil coordinator has changed one thing, and the code each is refused with."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from protocol import envelope
from protocol.envelope import Context
from protocol.keys import Identity
from protocol.messages import MAGIC, Carries, RefusalCode, Request, TrainLeg, encode
from protocol.model_bytes import ModelState
from tests.attacks.siege import STRANGER, Code, flipped
from tests.attacks.study import VICTIM, Experiment

Attack = Callable[[Experiment, TrainLeg], Request | bytes]


def changed(**changes: Any) -> Attack:
    return lambda _, honest: honest.model_copy(update=changes)


def signed_by(identity: Identity, purpose: str = "request") -> Attack:
    def attack(_: Experiment, honest: TrainLeg) -> bytes:
        body = encode(honest)
        return body + identity.sign(purpose, hashlib.sha256(body).digest())

    return attack


def altered(change: Callable[[bytes], bytes]) -> Attack:
    """Change the signed bytes on their way."""
    return lambda experiment, honest: change(experiment.study.sign(honest))


def resigned(change: Callable[[bytes], bytes]) -> Attack:
    """Change the header's text, and sign that."""

    def attack(experiment: Experiment, honest: TrainLeg) -> bytes:
        header = change(encode(honest.model_copy(update={"payload": b""}))[8:])
        body = MAGIC + len(header).to_bytes(4, "big") + header + honest.payload
        coordinator = experiment.study.coordinator
        return body + coordinator.sign("request", hashlib.sha256(body).digest())

    return attack


def payload(change: Callable[[bytes], bytes]) -> Attack:
    """Change the envelope, and sign that."""
    return lambda _, honest: honest.model_copy(update={"payload": change(honest.payload)})


def sealed(
    model: Callable[[ModelState], ModelState] = lambda model: model,
    *,
    key_of: str = VICTIM,
    member_key: bytes | None = None,
    **context: Any,
) -> Attack:
    """Seal a model for the victim, as a member that helps the coordinator could."""

    def attack(experiment: Experiment, honest: TrainLeg) -> TrainLeg:
        right = Context(
            experiment.id, experiment.secret("generation-digest"), experiment.legs, VICTIM
        )
        data = envelope.seal(
            model(experiment.first_model).to_bytes(),
            context=replace(right, **context),
            recipient_key=experiment.key_of(key_of),
            member_key=member_key or experiment.secret("member-key"),
        )
        return honest.model_copy(update={"payload": data})

    return attack


def aggregate(model: Callable[[ModelState], ModelState]) -> Attack:
    return lambda experiment, honest: honest.model_copy(
        update={
            "carries": Carries.AGGREGATE,
            "sealed_in": None,
            "payload": model(experiment.first_model).to_bytes(),
        }
    )


def tensor(name: str, change: Callable[[Any], Any]) -> Callable[[ModelState], ModelState]:
    return lambda model: ModelState(model.parameters | {name: change(model.parameters[name])})


def with_value(value: float) -> Callable[[ModelState], ModelState]:
    return tensor("output.bias", lambda array: np.full_like(array, value))


def with_more(name: str) -> Callable[[ModelState], ModelState]:
    return lambda model: ModelState(model.parameters | {name: np.zeros(1, np.float32)})


MODELS: dict[str, tuple[RefusalCode, Callable[[ModelState], ModelState]]] = {
    "of another shape": (Code.MODEL_MISMATCH, tensor("output.weight", np.transpose)),
    "of another type": (Code.MODEL_MISMATCH, tensor("output.bias", np.float64)),
    "with NaN": (Code.NOT_FINITE, with_value(np.nan)),
    "with infinity": (Code.NOT_FINITE, with_value(-np.inf)),
    "with an extra tensor": (Code.MODEL_MISMATCH, with_more("output.more")),
    "without its tensors": (Code.MODEL_MISMATCH, lambda _: ModelState({})),
    "with a buffer": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState(model.parameters, {"n": np.array(1)}),
    ),
    "with an optimiser's state": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState(model.parameters, {}, {"momentum/x": np.zeros(1)}),
    ),
    "of a megabyte more": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState(model.parameters | {"x": np.zeros(240_000, np.float32)}),
    ),
}
LEG: dict[str, tuple[RefusalCode, Attack]] = {
    # Who asks
    "without a signature": (Code.BAD_SIGNATURE, altered(lambda data: data[:-64])),
    "with a signature of zeros": (Code.BAD_SIGNATURE, altered(lambda d: d[:-64] + bytes(64))),
    "signed by a stranger": (Code.BAD_SIGNATURE, signed_by(STRANGER)),
    "signed by another member": (
        Code.BAD_SIGNATURE,
        lambda e, honest: signed_by(e.study.identities["Aspen"])(e, honest),
    ),
    "signed for another purpose": (
        Code.BAD_SIGNATURE,
        lambda e, honest: signed_by(e.study.coordinator, "roster")(e, honest),
    ),
    "with the last request's signature": (
        Code.BAD_SIGNATURE,
        lambda e, honest: encode(honest) + e.study.sign(e.asked[VICTIM])[-64:],
    ),
    # Bytes changed on the way
    "with a byte flipped in its magic": (Code.MALFORMED, altered(flipped(1))),
    "with a byte flipped in its length": (Code.MALFORMED, altered(flipped(7))),
    "with a byte flipped in a name": (
        Code.BAD_SIGNATURE,
        altered(lambda data: data.replace(b'"experiment":"e', b'"experiment":"f', 1)),
    ),
    "with a byte flipped in its envelope": (Code.BAD_SIGNATURE, altered(flipped(-700))),
    "with a byte flipped in its signature": (Code.BAD_SIGNATURE, altered(flipped(-1))),
    "cut off in its header": (Code.MALFORMED, altered(lambda data: data[:100])),
    "cut off in its envelope": (Code.BAD_SIGNATURE, altered(lambda data: data[:-100])),
    "with a byte more": (Code.BAD_SIGNATURE, altered(lambda data: data + b"\0")),
    "that is a single byte": (Code.MALFORMED, altered(lambda data: data[:1])),
    # Signed, but not a request
    "in another spelling": (Code.MALFORMED, resigned(lambda h: h.replace(b",", b", ", 1))),
    "with a field nobody knows": (Code.MALFORMED, resigned(lambda h: b'{"a":1,' + h[1:])),
    "with a field twice": (
        Code.MALFORMED,
        resigned(lambda h: h.replace(b'"local_rounds":1', b'"local_rounds":1,"local_rounds":1')),
    ),
    "of an experiment in a folder": (
        Code.MALFORMED,
        resigned(lambda h: h.replace(b'"experiment":"', b'"experiment":"../', 1)),
    ),
    # Another place in the experiment
    "of an experiment nobody agreed to": (Code.UNKNOWN_EXPERIMENT, changed(experiment="e0")),
    "of an older leg": (
        Code.OLD_LEG,
        lambda e, honest: honest.model_copy(update={"leg": e.legs - 1}),
    ),
    "of leg 0": (Code.MALFORMED, changed(leg=0)),
    "of the same leg with other bytes": (
        Code.CONFLICTING_REQUEST,
        lambda e, honest: honest.model_copy(update={"leg": e.legs}),
    ),
    "of no rounds": (Code.ROUNDS_REFUSED, changed(local_rounds=0)),
    "of more rounds than agreed": (Code.ROUNDS_REFUSED, changed(local_rounds=1001)),
    "of rounds after the end": (Code.ROUNDS_REFUSED, changed(first_round=1000)),
    "without a model": (
        Code.MALFORMED,
        changed(carries=Carries.NOTHING, payload=b"", sealed_in=None),
    ),
    # Another way for the answer
    "for a recipient nobody knows": (Code.UNKNOWN_RECIPIENT, changed(recipient="Elder")),
    "for the coordinator by name": (Code.UNKNOWN_RECIPIENT, changed(recipient="coordinator")),
    "for a member in other capitals": (Code.UNKNOWN_RECIPIENT, changed(recipient="aspen")),
    # Envelopes
    "with an envelope opened before": (
        Code.REPLAYED,
        lambda e, honest: honest.model_copy(
            update=e.asked[VICTIM].model_dump(include={"sealed_in"})
            | {"payload": e.asked[VICTIM].payload}
        ),
    ),
    "with an old envelope as a new one": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.asked[VICTIM].payload}),
    ),
    "with an envelope said to be of an older leg": (
        Code.REPLAYED,
        lambda e, honest: honest.model_copy(update={"sealed_in": e.legs - 1}),
    ),
    "with an envelope of no leg": (Code.MALFORMED, changed(sealed_in=None)),
    "with an envelope of leg 0": (Code.MALFORMED, changed(sealed_in=0)),
    "with an envelope of this leg": (
        Code.MALFORMED,
        lambda _, honest: honest.model_copy(update={"sealed_in": honest.leg}),
    ),
    "with an envelope for another hospital": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.envelopes["Cedar"]}),
    ),
    "with a share in place of an envelope": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.shares["Cedar"][VICTIM]}),
    ),
    "with an envelope sealed for another name": (Code.ENVELOPE_REFUSED, sealed(recipient="Cedar")),
    "with an envelope sealed for another key": (Code.ENVELOPE_REFUSED, sealed(key_of="Cedar")),
    "with an envelope of another experiment": (Code.ENVELOPE_REFUSED, sealed(experiment="e0")),
    "with an envelope of another leg": (Code.ENVELOPE_REFUSED, sealed(leg=999)),
    "with an envelope of another generation": (Code.ENVELOPE_REFUSED, sealed(generation=bytes(32))),
    "with a model sealed without the member key": (
        Code.ENVELOPE_REFUSED,
        sealed(member_key=bytes(32)),
    ),
    "with a readable model as an envelope": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.first_model.to_bytes()}),
    ),
    "with an envelope as an aggregate": (
        Code.MODEL_MISMATCH,
        changed(carries=Carries.AGGREGATE, sealed_in=None),
    ),
    "with no envelope": (Code.ENVELOPE_REFUSED, changed(payload=b"")),
    "with an envelope of zeros": (Code.ENVELOPE_REFUSED, payload(lambda e: bytes(len(e)))),
    "with a point of small order": (
        Code.ENVELOPE_REFUSED,
        payload(lambda e: e[:1088] + bytes(32) + e[1120:]),
    ),
    "with an envelope cut off": (Code.ENVELOPE_REFUSED, payload(lambda e: e[:-1])),
    "with an envelope lengthened": (Code.ENVELOPE_REFUSED, payload(lambda e: e + b"\0")),
    **{
        f"with an envelope flipped at byte {at}": (Code.ENVELOPE_REFUSED, payload(flipped(at)))
        for at in (0, 1087, 1088, 1119, 1120, -17, -1)
    },
    # Models, made up by the coordinator or by a member that helps it
    **{f"with an aggregate {what}": (code, aggregate(how)) for what, (code, how) in MODELS.items()},
    **{f"with a sealed model {what}": (c, sealed(how)) for what, (c, how) in MODELS.items()},
}
