"""Mutated requests, signed by the coordinator's own key where that gets them further.

Each is answered in a second at most, never with an internal error, and accepted only if it is what
an honest coordinator may ask for, as judged from the bytes alone. A refusal changes nothing.
"""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.settings import TrainingSettings
from protocol.message_bytes import MAGIC
from protocol.messages import Refusal, RefusalCode, Request
from tests.attacks.honest_requests import may_be_accepted
from tests.attacks.scene import KINDS, answered, scene
from tests.attacks.study import FEATURES, NAMES, TRAINING
from tests.fuzz import fuzz

pytestmark = pytest.mark.usefixtures("quiet")


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


@fuzz
@given(altered_requests())
def test_altered_requests_are_refused(data: bytes) -> None:
    reply = answered(data)
    if data not in scene().signed.values():
        assert isinstance(reply, Refusal)
        assert reply.code in (RefusalCode.MALFORMED, RefusalCode.BAD_SIGNATURE)


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
    bare = scene().study.sign(request.model_copy(update={"payload": b""}))
    header: dict[str, Any] = json.loads(bare[8:-64])
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
    """Change the announcements or the key shares, and sign them."""
    kind, other = draw(st.permutations(["exchange-key-shares", "open-key-shares"]))
    request, stranger = scene().honest[kind], scene().honest[other]
    payload = draw(mutated(request.payload, stranger.payload))
    if draw(st.booleans()):
        payload = draw(mutated(payload, draw(st.sampled_from(scene().pieces))))
    return scene().study.sign(request.model_copy(update={"payload": payload}))


def judge(data: bytes) -> None:
    if not isinstance(answered(data), Refusal):
        assert may_be_accepted(data)


@fuzz
@given(signed_requests())
def test_signed_requests_are_refused_or_could_be_honest(data: bytes) -> None:
    judge(data)


@fuzz
@given(signed_descriptors())
def test_signed_descriptors_are_refused_or_within_policy(data: bytes) -> None:
    judge(data)


@fuzz
@given(signed_bundles())
def test_signed_announcements_and_key_shares_are_refused(data: bytes) -> None:
    judge(data)
