"""Mutated requests, signed by the coordinator's own key where that gets them further.

Each is answered in a second at most, never with an internal error, and accepted only if it is what
an honest coordinator may ask for, as judged here from the bytes alone. A refusal changes nothing.
A few hundred are tried here, ten thousand of each kind in the slow tests.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import load

from client_app.hospital import Hospital
from client_app.store import MappingStore
from learning.settings import TrainingSettings
from protocol.messages import (
    MAGIC,
    Carries,
    Close,
    ExchangeShares,
    Hello,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    SetUp,
    TrainLeg,
    decode_reply,
    encode,
)
from tests.attacks.study import (
    CLASSES,
    FEATURES,
    NAMES,
    TRAINING,
    VICTIM,
    Experiment,
    in_process,
    new_study,
    share,
)

FEW = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=10_000)
ROUNDS = 20
AGREED, WITH_KEYS = ("e1", "e2", "e3"), "e3"

KINDS = (
    *("hello", "set-up", "exchange-shares", "open-shares"),
    *("train-leg", "aggregate", "close"),
)


class Scene:
    """A victim in the middle of things, and the honest request that each of them waits for.

    It has agreed to three experiments: it is about to be shown announcements in the first, shares
    in the second, and the envelope of leg 3 in the third. A fourth is about to be opened.
    """

    def __init__(self) -> None:
        self.study = new_study()
        for seed, name in enumerate(NAMES):
            in_process(self.study, name, share(name, seed))
        self.announced, self.shared, self.training, self.new = (
            Experiment(self.study, self.study.descriptor(rounds=ROUNDS)) for _ in range(4)
        )
        for begun in (self.announced, self.shared, self.training):
            begun.agree()
        self.shared.exchange_all()
        self.training.make_keys()
        self.training.leg()
        self.training.leg()
        self.memory = dict(self.study.memories[VICTIM])
        self.asked = {p.request for p in self.study.passed if p.hospital == VICTIM}
        self.model = self.training.first_model.to_bytes()
        self.leg = self.training.request(VICTIM)
        requests: tuple[Request, ...] = (
            Hello(),
            self.new.set_up(),
            self.announced.exchange(),
            self.shared.open(VICTIM),
            self.leg,
            self.training.request(
                VICTIM,
                carries=Carries.AGGREGATE,
                sealed_in=None,
                recipient=None,
                payload=self.model,
            ),
            Close(experiment=self.training.id, payload=self.model),
        )
        self.honest = dict(zip(KINDS, requests, strict=True))
        self.signed = {kind: self.study.sign(request) for kind, request in self.honest.items()}
        self.pieces = [request.payload for request in requests]
        self.pieces += [self.training.asked[VICTIM].payload, b""]

    def victim(self, memory: dict[str, bytes]) -> Hospital:
        hospital = self.study.hospitals[VICTIM]
        assert isinstance(hospital, Hospital)
        return hospital.remembering(MappingStore(memory))


@cache
def scene() -> Scene:
    return Scene()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def answered(data: bytes) -> Reply:
    """Ask the victim as it was; see what must hold whatever is asked."""
    memory = dict(scene().memory)
    victim = scene().victim(memory)
    started = time.thread_time()
    reply = decode_reply(victim.answer(data))
    assert time.thread_time() - started < 1
    if isinstance(reply, Refusal):
        assert reply.code != RefusalCode.INTERNAL_ERROR
        assert forget_trail(memory) == forget_trail(scene().memory)
    return reply


def forget_trail(memory: dict[str, bytes]) -> dict[str, bytes]:
    return {name: value for name, value in memory.items() if name != "audit-head"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_honest_requests_are_accepted(kind: str) -> None:
    data = scene().signed[kind]
    assert not isinstance(answered(data), Refusal)
    assert may_be_accepted(data)


# --- bytes changed on the way ---------------------------------------------------------------------

BYTES = st.binary(min_size=1, max_size=40)


@st.composite
def mutated(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Flip, cut, insert, splice or make up bytes."""
    at = draw(st.integers(0, len(data)))
    end = draw(st.integers(at, len(data)))
    match draw(st.sampled_from(("flip", "cut", "behead", "remove", "insert", "splice", "noise"))):
        case "flip" if data:
            at = min(at, len(data) - 1)
            flipped = data[at] ^ (1 << draw(st.integers(0, 7)))
            return data[:at] + bytes([flipped]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "behead":
            return data[at:]
        case "remove":
            return data[:at] + data[end:]
        case "insert":
            return data[:at] + draw(BYTES) + data[at:]
        case "splice":
            return data[:at] + other[draw(st.integers(0, len(other))) :]
        case _:
            return draw(st.binary(max_size=300))


@st.composite
def altered_requests(draw: st.DrawFn) -> bytes:
    signed_ones = list(scene().signed.values())
    return draw(mutated(draw(st.sampled_from(signed_ones)), draw(st.sampled_from(signed_ones))))


def refuse_altered(data: bytes) -> None:
    reply = answered(data)
    if data not in scene().signed.values():
        assert isinstance(reply, Refusal)
        assert reply.code in (RefusalCode.MALFORMED, RefusalCode.BAD_SIGNATURE)


@FEW
@given(altered_requests())
def test_altered_requests_are_refused(data: bytes) -> None:
    refuse_altered(data)


@pytest.mark.slow
@MANY
@given(altered_requests())
def test_ten_thousand_altered_requests_are_refused(data: bytes) -> None:
    refuse_altered(data)


# --- requests that the coordinator signs ----------------------------------------------------------

ODD: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 19, 20, 21, -1, 2**31, 2**53 - 1, 2**53, 2**63, 10**400),
    *(0.0, 0.5, 1.0, -1.5, 1e-320, 1e308, 1e400, float("nan"), "", " ", "0", "1", "mlp", "linear"),
    *("aggregate", "envelope", "nothing", "train-leg", "close", "hello", "set-up", "own", "shared"),
    *(*NAMES, "Elder", "birch", "a\nb", "\u202e", "\x00", "é", "x" * 300, "../x", "e1/x", "e99"),
    *("adam", "hinge", "float16", "bfloat16", "kept", "{}", '{"hidden":[3]}', '{"hidden":[]}'),
    *('{"hidden":[9,9]}', '{"outputs":1}', "[" * 5000),
    *([], [1], [FEATURES], {}, {"sequence": 1}, "0" * 64, "f" * 128),
    *("e1", "e2", "e3", "e4"),  # the scene's
]


@st.composite
def odd_objects(draw: st.DrawFn, fields: dict[str, Any]) -> dict[str, Any]:
    """Change one to three fields, mostly to values of the same type; or remove or add one."""
    changed = dict(fields)
    for _ in range(draw(st.integers(1, 3))):
        key = draw(st.sampled_from([key for key in fields if key != "kind"] or ["kind"]))
        like = [value for value in ODD if type(value) is type(fields[key])]
        match draw(st.integers(0, 19)):
            case 0:
                changed.pop(key, None)
            case 1:
                changed[draw(st.sampled_from(("leg", "payload", "kind", "seen", "x")))] = 1
            case 2 | 3:
                changed[key] = draw(st.sampled_from(ODD))
            case _:
                changed[key] = draw(st.sampled_from(like or ODD))
    return changed


@st.composite
def written(draw: st.DrawFn, fields: dict[str, Any]) -> bytes:
    """Write an object as JSON, mostly in the canonical form."""
    if draw(st.integers(0, 9)):
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    text = json.dumps(fields, sort_keys=draw(st.booleans()), ensure_ascii=draw(st.booleans()))
    return text.encode(errors="replace")


def header_of(request: Request) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(encode(request.model_copy(update={"payload": b""}))[8:])
    return header


def signed(header: bytes, payload: bytes) -> bytes:
    body = MAGIC + len(header).to_bytes(4, "big") + header + payload
    return body + scene().study.coordinator.sign("request", hashlib.sha256(body).digest())


@st.composite
def signed_requests(draw: st.DrawFn) -> bytes:
    """Change a request's header, its payload or both, and sign it."""
    request = scene().honest[draw(st.sampled_from((*KINDS, *("train-leg", "aggregate") * 3)))]
    fields, payload = header_of(request), request.payload
    what = draw(st.integers(1, 3))
    if what & 1:
        fields = draw(odd_objects(fields))
    if what & 2:
        piece = draw(st.sampled_from(scene().pieces))
        payload = draw(st.one_of(st.just(piece), mutated(request.payload, piece)))
    return signed(draw(written(fields)), payload)


@st.composite
def signed_descriptors(draw: st.DrawFn) -> bytes:
    """Change the settings of an experiment that is about to be opened, and sign them."""
    new = scene().new
    fields: dict[str, Any] = json.loads(new.descriptor.to_bytes())
    if draw(st.booleans()):
        every = TrainingSettings.parse(TRAINING, source="test").as_config()
        fields["training"] = draw(odd_objects(every))
    else:
        fields = draw(odd_objects(fields))
    payload = draw(written(fields))
    if not draw(st.integers(0, 5)):
        payload = draw(mutated(payload, new.descriptor.to_bytes()))
    return signed(json.dumps(header_of(new.set_up()), separators=(",", ":")).encode(), payload)


@st.composite
def signed_bundles(draw: st.DrawFn) -> bytes:
    """Change the announcements or the shares, and sign them."""
    kind, other = draw(st.permutations(["exchange-shares", "open-shares"]))
    request, stranger = scene().honest[kind], scene().honest[other]
    payload = draw(mutated(request.payload, stranger.payload))
    if draw(st.booleans()):
        payload = draw(mutated(payload, draw(st.sampled_from(scene().pieces))))
    return scene().study.sign(request.model_copy(update={"payload": payload}))


def judge(data: bytes) -> None:
    if not isinstance(answered(data), Refusal):
        assert may_be_accepted(data)


@FEW
@given(signed_requests())
def test_signed_requests_are_refused_or_could_be_honest(data: bytes) -> None:
    judge(data)


@FEW
@given(signed_descriptors())
def test_signed_descriptors_are_refused_or_within_policy(data: bytes) -> None:
    judge(data)


@FEW
@given(signed_bundles())
def test_signed_announcements_and_shares_are_refused(data: bytes) -> None:
    judge(data)


@pytest.mark.slow
@MANY
@given(signed_requests())
def test_ten_thousand_signed_requests_are_refused_or_could_be_honest(data: bytes) -> None:
    judge(data)


@pytest.mark.slow
@MANY
@given(signed_descriptors())
def test_ten_thousand_signed_descriptors_are_refused_or_within_policy(data: bytes) -> None:
    judge(data)


@pytest.mark.slow
@MANY
@given(signed_bundles())
def test_ten_thousand_signed_announcements_and_shares_are_refused(data: bytes) -> None:
    judge(data)


# --- what an honest coordinator may ask for, read from the bytes ----------------------------------


def may_be_accepted(data: bytes) -> bool:
    """Judge a request that is signed, knowing what the victim remembers."""
    end = 8 + int.from_bytes(data[4:8], "big")
    text, payload = data[8:end], data[end:-64]
    fields = json.loads(text)
    if json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() != text:
        return False
    if fields["kind"] == "hello":
        return set(fields) == {"kind"}
    if data in scene().asked or data in scene().signed.values():
        return True
    experiment = fields["experiment"]
    agreed = experiment in AGREED
    match fields["kind"]:
        case "set-up":
            # What is agreed to already was asked for in other bytes.
            return not agreed and is_within_policy(json.loads(payload), experiment)
        case "exchange-shares" | "open-shares":
            return False  # every byte of them is signed by the members
        case "train-leg":
            return is_a_leg(fields, payload)
        case "close":
            return agreed and is_a_model(payload)
    return False


def is_within_policy(form: dict[str, Any], experiment: str) -> bool:
    training = form["training"]
    batch = training.get("batch-size", 0)
    return (
        form["experiment"] == experiment
        and form["roster"] == scene().study.roster.digest.hex()
        and form["sealed"] is True
        and form["shape"] == [FEATURES]
        and form["classes"] >= CLASSES
        and 1 <= form["rounds"] <= 100_000
        and training.get("model", "mlp") in ("mlp", "linear")
        and 0 < training.get("learning-rate", 0.1) <= 10
        and (batch == 0 or batch >= 2)
    )


def is_a_leg(fields: dict[str, Any], payload: bytes) -> bool:
    experiment, first, rounds = (fields[k] for k in ("experiment", "first_round", "local_rounds"))
    keyed = experiment == WITH_KEYS
    fits = (
        experiment in AGREED
        and fields["leg"] > (2 if keyed else 0)
        and first >= 0 < rounds <= ROUNDS - first
        and (fields["recipient"] is None or (keyed and fields["recipient"] in NAMES))
    )
    match fields["carries"]:
        case "envelope":
            return fits and keyed and fields["sealed_in"] == 2 and payload == scene().leg.payload
        case "aggregate":
            return fits and is_a_model(payload)
    return False


def is_a_model(payload: bytes) -> bool:
    try:
        tensors = load(payload)
    except SafetensorError:
        return False
    wanted = {name: array.shape for name, array in load(scene().model).items()}
    return {name: array.shape for name, array in tensors.items()} == wanted and all(
        array.dtype == np.float32 and np.isfinite(array).all() for array in tensors.values()
    )


# --- bombs: small to send, or long, and dear to read ----------------------------------------------

MEGABYTE = 1 << 20


def document(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(shape: list[int], length: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [0, length]}


def leg_with(payload: bytes) -> TrainLeg:
    return scene().training.request(
        VICTIM, carries=Carries.AGGREGATE, sealed_in=None, payload=payload
    )


def set_up_with(**training: Any) -> SetUp:
    new = scene().new
    changed = new.descriptor.model_copy(update={"training": TRAINING | training})
    return SetUp(experiment=new.id, payload=changed.to_bytes())


def shown(payload: bytes) -> ExchangeShares:
    return ExchangeShares(experiment=scene().announced.id, payload=payload)


BOMBS: dict[str, tuple[RefusalCode, Any]] = {
    "millions of empty pieces": (
        RefusalCode.KEYS_REFUSED,
        lambda: shown(bytes(16 * MEGABYTE)),
    ),
    "a million names": (
        RefusalCode.KEYS_REFUSED,
        lambda: shown(b"".join(b"\0\0\0\x08%08d\0\0\0\0" % n for n in range(1_000_000))),
    ),
    "a piece of four gigabytes": (
        RefusalCode.KEYS_REFUSED,
        lambda: shown(b"\0\0\0\x01a" + b"\xff" * 8),
    ),
    "a hundred thousand empty tensors": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with(document({f"parameter/{n}": tensor([0], 0) for n in range(100_000)})),
    ),
    "a tensor of 2^80 numbers": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with(document({"parameter/x": tensor([2**40, 2**40], 0)})),
    ),
    "an empty tensor of many dimensions": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with(document({"parameter/x": tensor([0, *[2**62] * 40], 0)})),
    ),
    "a header of 2^63 bytes": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with((2**63 - 1).to_bytes(8, "little") + b"{}"),
    ),
    "a deep header": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with((500).to_bytes(8, "little") + b'{"a":' * 100),
    ),
    "metadata of megabytes": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with(document({"__metadata__": {"a": "b" * 16 * MEGABYTE}})),
    ),
    "a descriptor of megabytes": (
        RefusalCode.MALFORMED,
        lambda: set_up_with(**{"model-options": '{"hidden":[3]}' + " " * 16 * MEGABYTE}),
    ),
    "fifty thousand settings": (
        RefusalCode.MALFORMED,
        lambda: set_up_with(**{f"k{n}": 1 for n in range(50_000)}),
    ),
    "a list that long": (
        RefusalCode.MALFORMED,
        lambda: set_up_with(**{"model-options": f'{{"hidden":[{"1," * 1_000_000}1]}}'}),
    ),
    "deep options": (
        RefusalCode.DESCRIPTOR_REFUSED,
        lambda: set_up_with(**{"model-options": '{"hidden":' + "[" * 100_000}),
    ),
    "a number of many digits": (
        RefusalCode.DESCRIPTOR_REFUSED,
        lambda: set_up_with(**{"model-options": '{"hidden":[1' + "0" * 100_000 + "]}"}),
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_in_a_second(bomb: str) -> None:
    code, made = BOMBS[bomb]
    reply = answered(scene().study.sign(made()))
    assert isinstance(reply, Refusal)
    assert reply.code == code


def test_a_long_body_that_nobody_signed_is_refused_in_a_second() -> None:
    reply = answered(encode(leg_with(os.urandom(MEGABYTE) * 32)) + bytes(64))
    assert isinstance(reply, Refusal)
    assert reply.code == RefusalCode.BAD_SIGNATURE
