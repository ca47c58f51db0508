"""Requests in which one thing is wrong, and the code each is refused with.

`REQUESTS` is the one table of refused requests. Each entry changes one thing in the next honest
leg of an experiment whose victim has opened an envelope. test_hospital_refusals.py checks in
process that a refusal changes nothing; test_evil_coordinator_legs.py runs the table against a real
agent.
"""

import numpy as np

from protocol.message_bytes import encode, sign_request
from protocol.messages import (
    ANY_HOSPITAL,
    Announcement,
    Carries,
    Close,
    ExchangeKeyShares,
    Hello,
    RefusalCode,
    SetUp,
)
from protocol.model_bytes import ModelState
from tests.attacks.forgeries import (
    Attack,
    MakeModel,
    aggregate,
    agreement,
    altered,
    changed,
    final,
    last_request,
    payload,
    resigned,
    sealed,
    signed_by,
    tensor,
    with_more,
    with_value,
    without,
)
from tests.attacks.siege import STRANGER, Code, flipped
from tests.attacks.study import ROUNDS, VICTIM

MODELS: dict[str, tuple[RefusalCode, MakeModel]] = {
    "of another shape": (Code.MODEL_MISMATCH, tensor("output.weight", np.transpose)),
    "with a dimension more": (Code.MODEL_MISMATCH, tensor("output.bias", lambda a: a[None])),
    "in double precision": (Code.MODEL_MISMATCH, tensor("output.bias", np.float64)),
    "of whole numbers": (Code.MODEL_MISMATCH, tensor("output.bias", np.int64)),
    "of complex numbers": (Code.MODEL_MISMATCH, tensor("output.bias", np.complex64)),
    "in narrower numbers than agreed": (Code.MODEL_MISMATCH, lambda m: m.to_bytes(wire="float16")),
    "with NaN": (Code.NOT_FINITE, with_value(np.nan)),
    "with infinity": (Code.NOT_FINITE, with_value(np.inf)),
    "with minus infinity": (Code.NOT_FINITE, with_value(-np.inf)),
    "with an extra tensor": (Code.MODEL_MISMATCH, with_more("output.more")),
    "without one of its tensors": (Code.MODEL_MISMATCH, without("output.bias")),
    "without its tensors": (Code.MODEL_MISMATCH, lambda _: ModelState({}).to_bytes()),
    "of another network": (
        Code.MODEL_MISMATCH,
        lambda _: ModelState({"layer.weight": np.zeros((2, 2), np.float32)}).to_bytes(),
    ),
    "with a buffer": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState(model.parameters, {"n": np.array(1)}).to_bytes(),
    ),
    "with a parameter as a buffer": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState({}, model.parameters).to_bytes(),
    ),
    "with an optimiser's state": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState(model.parameters, {}, {"momentum/x": np.zeros(1)}).to_bytes(),
    ),
    "of a megabyte more": (Code.MODEL_MISMATCH, with_more("x", 240_000)),
    "that is a pickle": (Code.MODEL_MISMATCH, lambda _: b"\x80\x04pickle"),
    "cut off": (Code.MODEL_MISMATCH, lambda model: model.to_bytes()[:-1]),
    "of no bytes": (Code.MODEL_MISMATCH, lambda _: b""),
}
REQUESTS: dict[str, tuple[RefusalCode, Attack]] = {
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
        lambda e, honest: e.study.sign(honest)[:-64] + e.study.sign(e.asked[VICTIM])[-64:],
    ),
    "a hello of a stranger": (Code.BAD_SIGNATURE, signed_by(STRANGER, request=Hello())),
    # Bytes changed in transit
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
    "that is noise": (Code.MALFORMED, altered(lambda _: b"\xff" * 200)),
    # Signed, but not a request
    "that is a reply": (
        Code.MALFORMED,
        lambda e, _: encode(Announcement(examples=1)) + e.study.sign(Hello())[-64:],
    ),
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
    # For somebody else
    "for another hospital": (Code.MISADDRESSED, lambda e, h: e.study.sign(h, "Cedar")),
    "for any hospital": (Code.MISADDRESSED, lambda e, h: e.study.sign(h, ANY_HOSPITAL)),
    "for another study": (
        Code.MISADDRESSED,
        lambda e, h: sign_request(h, e.study.coordinator, study="lungs", hospital=VICTIM),
    ),
    # Another place in the experiment
    "of an experiment nobody agreed to": (Code.UNKNOWN_EXPERIMENT, changed(experiment="e0")),
    "a closing of an experiment nobody agreed to": (
        Code.UNKNOWN_EXPERIMENT,
        lambda e, _: Close(experiment="e0", payload=e.first_model.to_bytes()),
    ),
    "announcements of an experiment nobody agreed to": (
        Code.UNKNOWN_EXPERIMENT,
        lambda e, _: ExchangeKeyShares(experiment="e0", payload=e.exchange().payload),
    ),
    "of an older leg": (
        Code.OLD_LEG,
        lambda e, honest: honest.model_copy(update={"leg": e.legs - 1}),
    ),
    "of leg 0": (Code.MALFORMED, changed(leg=0)),
    "of the same leg with other bytes": (
        Code.CONFLICTING_REQUEST,
        lambda e, honest: honest.model_copy(update={"leg": e.legs}),
    ),
    "the last request with more rounds": (Code.CONFLICTING_REQUEST, last_request(local_rounds=2)),
    "the last request with another model": (
        Code.CONFLICTING_REQUEST,
        lambda e, _: last_request(payload=e.first_model.to_bytes())(e, _),
    ),
    "a second set-up with other terms": (
        Code.CONFLICTING_REQUEST,
        lambda e, _: agreement(e, rounds=ROUNDS - 1),
    ),
    "a second set-up in another spelling": (
        Code.MALFORMED,
        lambda e, _: SetUp(experiment=e.id, payload=e.descriptor.to_bytes() + b" "),
    ),
    "the set-up under another id": (
        Code.MALFORMED,
        lambda e, _: SetUp(experiment="e0", payload=e.descriptor.to_bytes()),
    ),
    "of no rounds": (Code.AGAINST_SCHEDULE, changed(local_rounds=0)),
    "of more rounds than agreed": (Code.AGAINST_SCHEDULE, changed(local_rounds=ROUNDS + 1)),
    "of rounds after the end": (Code.AGAINST_SCHEDULE, changed(first_round=ROUNDS)),
    "of rounds beyond the end": (
        Code.AGAINST_SCHEDULE,
        changed(first_round=ROUNDS - 1, local_rounds=2),
    ),
    "of rounds trained before": (
        Code.AGAINST_SCHEDULE,
        lambda e, h: h.model_copy(update={"first_round": h.first_round - 1, "local_rounds": 1}),
    ),
    "of rounds trained before, to catch up": (
        Code.AGAINST_SCHEDULE,
        lambda e, h: h.model_copy(update={"first_round": h.first_round - 1, "local_rounds": 2}),
    ),
    "of a later leg with this one's rounds": (
        Code.AGAINST_SCHEDULE,
        lambda e, h: h.model_copy(update={"leg": h.leg + 1}),
    ),
    "of a leg after the last": (Code.AGAINST_SCHEDULE, changed(leg=ROUNDS + 1)),
    "to be aggregated where the schedule hands over": (
        Code.AGAINST_SCHEDULE,
        changed(recipient=None),
    ),
    "with an aggregate where there was no aggregation": (
        Code.AGAINST_SCHEDULE,
        aggregate(ModelState.to_bytes),
    ),
    "of endless rounds": (Code.AGAINST_SCHEDULE, changed(local_rounds=2**53 - 1)),
    "of rounds that overflow": (Code.AGAINST_SCHEDULE, changed(first_round=2**53 - 1)),
    "without a model": (
        Code.AGAINST_SCHEDULE,
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
    "with a key share as an envelope": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.key_shares["Cedar"][VICTIM]}),
    ),
    "with a key share as an envelope of leg 0": (
        Code.MALFORMED,
        lambda e, honest: honest.model_copy(
            update={"payload": e.key_shares["Cedar"][VICTIM], "sealed_in": 0}
        ),
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
    # Models, invented by the coordinator or by a member that colludes with it
    **{f"with an aggregate {what}": (code, aggregate(how)) for what, (code, how) in MODELS.items()},
    **{f"with a sealed model {what}": (c, sealed(how)) for what, (c, how) in MODELS.items()},
    **{f"a final model {what}": (c, final(how)) for what, (c, how) in MODELS.items()},
}
