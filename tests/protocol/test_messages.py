"""Messages as bytes: what is written can be read by hand, and nothing else is ever accepted."""

import hashlib
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from protocol.audit import AuditHead
from protocol.keys import Identity
from protocol.messages import (
    Announcement,
    Carries,
    Close,
    Closed,
    ExchangeShares,
    Hello,
    Introduction,
    MessageError,
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
    decode_request,
    decode_signed_request,
    encode,
    is_signed_by,
    sign_request,
)

WIDE = settings(max_examples=200, deadline=None)

names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=40)
counts = st.integers(0, 2**53 - 1)
figures = st.floats()
perhaps = st.none() | figures
payloads = st.binary(max_size=64)
experiments = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
hexadecimal = st.binary(min_size=32, max_size=32).map(bytes.hex)
heads = st.none() | st.builds(
    AuditHead,
    sequence=counts,
    digest=hexadecimal,
    signature=st.binary(min_size=64, max_size=64).map(bytes.hex),
)
requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(Hello, payload=payloads),
    st.builds(SetUp, experiment=experiments, payload=payloads),
    st.builds(ExchangeShares, experiment=experiments, payload=payloads),
    st.builds(OpenShares, experiment=experiments, payload=payloads),
    st.builds(
        TrainLeg,
        experiment=experiments,
        leg=st.integers(1, 2**53 - 1),
        first_round=counts,
        local_rounds=counts,
        carries=st.sampled_from(Carries),
        sealed_in=st.none() | counts,
        recipient=st.none() | names,
        seen=heads,
        payload=payloads,
    ),
    st.builds(Close, experiment=experiments, payload=payloads),
)
replies: st.SearchStrategy[Reply] = st.one_of(
    st.builds(Introduction, hospital=names, payload=payloads, audit=heads),
    st.builds(Announcement, examples=st.none() | counts, payload=payloads, audit=heads),
    st.builds(Shares, payload=payloads, audit=heads),
    st.builds(Ready, confirmation=hexadecimal, payload=payloads, audit=heads),
    st.builds(
        Trained,
        leg=counts,
        sealed=st.booleans(),
        loss=perhaps,
        accuracy=perhaps,
        audit=heads,
        held_out_loss=perhaps,
        held_out_accuracy=perhaps,
        payload=payloads,
    ),
    st.builds(Closed, held_out_loss=perhaps, held_out_accuracy=perhaps, payload=payloads),
    st.builds(Refusal, code=st.sampled_from(RefusalCode), payload=payloads),
)

LEG: dict[str, Any] = {
    "carries": "envelope",
    "experiment": "e1",
    "first_round": 4,
    "kind": "train-leg",
    "leg": 3,
    "local_rounds": 2,
    "recipient": "north",
    "sealed_in": 2,
    "seen": None,
}
TRAINED: dict[str, Any] = {
    "accuracy": 0.5,
    "audit": None,
    "held_out_accuracy": None,
    "held_out_loss": None,
    "kind": "trained",
    "leg": 3,
    "loss": 1.25,
    "sealed": False,
}


def framed(header: bytes, payload: bytes = b"") -> bytes:
    """Write a message by hand, as the format says."""
    return b"FDC1" + len(header).to_bytes(4, "big") + header + payload


def dumped(fields: object) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def decode_either(data: bytes) -> Request | Reply:
    try:
        return decode_request(data)
    except MessageError:
        return decode_reply(data)


# --- what is written is what was agreed -----------------------------------------------------------


def test_the_bytes_of_a_request_are_those_of_the_written_format() -> None:
    request = TrainLeg(
        experiment="e1",
        leg=3,
        first_round=4,
        local_rounds=2,
        carries=Carries.ENVELOPE,
        sealed_in=2,
        recipient="north",
        payload=b"\x00sealed",
    )
    assert encode(request) == (
        b'FDC1\x00\x00\x00\x92{"carries":"envelope","experiment":"e1","first_round":4,'
        b'"kind":"train-leg","leg":3,"local_rounds":2,"recipient":"north","sealed_in":2,'
        b'"seen":null}\x00sealed'
    )


@WIDE
@given(requests | replies)
def test_a_message_read_by_hand_has_its_fields_and_its_payload(message: Request | Reply) -> None:
    data = encode(message)
    length = int.from_bytes(data[4:8], "big")
    fields = json.loads(data[8 : 8 + length])

    assert data[:4] == b"FDC1"
    assert data[8 + length :] == message.payload
    assert fields.keys() == type(message).model_fields.keys() - {"payload"}
    for name, value in fields.items():
        # repr: a loss may be NaN, which is not equal to itself.
        told = getattr(message, name)
        expected = dict(sorted(told)) if isinstance(told, AuditHead) else _plain(told)
        assert repr(value) == repr(expected)


@WIDE
@given(requests)
def test_a_request_comes_back_as_it_was(request: Request) -> None:
    back = decode_request(encode(request))

    assert type(back) is type(request)
    assert (back, back.payload) == (request, request.payload)


@WIDE
@given(replies)
def test_a_reply_comes_back_as_it_was(reply: Reply) -> None:
    back = decode_reply(encode(reply))

    assert type(back) is type(reply)
    assert (repr(back), back.payload) == (repr(reply), reply.payload)


def test_a_header_is_small_however_large_the_model() -> None:
    request = Close(experiment="e", payload=bytes(1_000_000))

    assert len(encode(request)) == 1_000_000 + 8 + len(b'{"experiment":"e","kind":"close"}')


def test_a_message_does_not_change_and_does_not_print_its_payload() -> None:
    request = SetUp(experiment="e", payload=b"secret seed")

    with pytest.raises(ValidationError, match="frozen"):
        request.experiment = "other"
    assert "secret" not in repr(request)


# --- one message has one form ---------------------------------------------------------------------

SECOND_SPELLINGS = {
    "white space": dumped(LEG).replace(b",", b", ", 1),
    "a line break at the end": dumped(LEG) + b"\n",
    "a byte order mark": b"\xef\xbb\xbf" + dumped(LEG),
    "other order of keys": json.dumps(LEG | {}, separators=(",", ":"))
    .replace('{"carries":"envelope",', '{"experiment":"e1","carries":"envelope",', 1)
    .replace(',"experiment":"e1"', "", 1)
    .encode(),
    "an escaped letter": dumped(LEG).replace(b"north", rb"n\u006frth"),
    "an escaped slash": dumped(LEG | {"recipient": "n/s"}).replace(b"/", rb"\/"),
    "unescaped unicode": dumped(LEG | {"recipient": "é"}).replace(rb"\u00e9", "é".encode()),
    "capital hex digits": dumped(LEG | {"recipient": "é"}).replace(rb"\u00e9", rb"\u00E9"),
    "a key twice": dumped(LEG).replace(b'"leg":3', b'"leg":3,"leg":3'),
    "a key twice, differently": dumped(LEG).replace(b'"leg":3', b'"leg":9,"leg":3'),
    "a default left out": dumped({"experiment": "e1"}),
    "a number with an exponent": dumped(LEG).replace(b'"leg":3', b'"leg":3e0'),
    "a number with a fraction": dumped(LEG).replace(b'"leg":3', b'"leg":3.0'),
    "minus zero": dumped(LEG).replace(b'"leg":3', b'"leg":-0'),
    "a leading zero": dumped(LEG).replace(b'"leg":3', b'"leg":03'),
}


@pytest.mark.parametrize("header", SECOND_SPELLINGS.values(), ids=SECOND_SPELLINGS)
def test_a_second_spelling_of_a_request_is_refused(header: bytes) -> None:
    assert header != dumped(LEG)
    with pytest.raises(MessageError):
        decode_request(framed(header))


@pytest.mark.parametrize("loss", [b"1.250", b"125e-2", b"1.25e0", b"+1.25"])
def test_a_second_spelling_of_a_figure_is_refused(loss: bytes) -> None:
    header = dumped(TRAINED)

    assert decode_reply(framed(header)).kind == "trained"
    with pytest.raises(MessageError):
        decode_reply(framed(header.replace(b"1.25", loss)))


def test_a_whole_number_for_a_figure_is_a_second_spelling() -> None:
    with pytest.raises(MessageError, match="canonical"):
        decode_reply(framed(dumped(TRAINED | {"loss": 1})))


# --- hostile headers ------------------------------------------------------------------------------

WRONG_FIELDS: dict[str, dict[str, Any]] = {
    "unknown kind": {"kind": "run-code"},
    "kind of a reply": {"kind": "trained"},
    "kind is a list": {"kind": ["train-leg"]},
    "kind is null": {"kind": None},
    "extra field": {"learning_rate": 100.0},
    "payload in the header": {"payload": "x"},
    "negative leg": {"leg": -1},
    "negative round": {"first_round": -1},
    "huge leg": {"leg": 2**53},
    "larger than any machine's": {"leg": 10**4000},
    "leg is text": {"leg": "3"},
    "leg is true": {"leg": True},
    "leg is null": {"leg": None},
    "leg is a list": {"leg": [3]},
    "rounds are fractional": {"local_rounds": 1.5},
    "rounds are NaN": {"local_rounds": float("nan")},
    "carries something unknown": {"carries": "pickle"},
    "carries nothing at all": {"carries": None},
    "empty recipient": {"recipient": ""},
    "endless recipient": {"recipient": "n" * 201},
    "recipient is a number": {"recipient": 7},
    "recipient is an object": {"recipient": {"name": "north"}},
    "recipient with a line break": {"recipient": "north\nsouth"},
    "recipient with an escape code": {"recipient": "\x1b[2Jnorth"},
    "recipient with a NUL": {"recipient": "north\0"},
    "recipient with a line separator": {"recipient": "north\u2028"},
    "recipient is half a character": {"recipient": "\ud800"},
    "empty experiment": {"experiment": ""},
    "an experiment like a path": {"experiment": "e1/answer"},
    "an experiment with a blank": {"experiment": "e 1"},
    "an endless experiment": {"experiment": "e" * 65},
    "sealed in a negative leg": {"sealed_in": -1},
    "sealed in text": {"sealed_in": "2"},
    "a head that is text": {"seen": "x"},
    "a head without a signature": {"seen": {"sequence": 1, "digest": "0" * 64}},
    "a head with a negative number": {
        "seen": {"sequence": -1, "digest": "0" * 64, "signature": "0" * 128}
    },
    "a head in capitals": {"seen": {"sequence": 1, "digest": "A" * 64, "signature": "0" * 128}},
}


@pytest.mark.parametrize("change", WRONG_FIELDS.values(), ids=WRONG_FIELDS)
def test_a_wrong_field_is_refused(change: dict[str, Any]) -> None:
    assert decode_request(framed(dumped(LEG))).kind == "train-leg"
    with pytest.raises(MessageError):
        decode_request(framed(dumped(LEG | change)))


@pytest.mark.parametrize("field", LEG)
def test_a_missing_field_is_refused(field: str) -> None:
    with pytest.raises(MessageError):
        decode_request(framed(dumped({key: LEG[key] for key in LEG if key != field})))


@pytest.mark.parametrize(
    "change",
    [
        {"loss": []},
        {"loss": "1.25"},
        {"accuracy": True},
        {"sealed": 0},
        {"sealed": "false"},
        {"leg": -1},
        {"held_out_loss": []},
    ],
)
def test_a_wrong_field_of_a_reply_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        decode_reply(framed(dumped(TRAINED | change)))


def test_a_refusal_has_one_of_the_agreed_codes_and_no_text() -> None:
    for fields in ({"code": "age over 60"}, {"code": "malformed", "detail": "age over 60"}):
        with pytest.raises(MessageError):
            decode_reply(framed(dumped({"kind": "refusal", "audit": None} | fields)))


HOSTILE_HEADERS = {
    "empty": b"",
    "null": b"null",
    "a list": b"[]",
    "text": b'"hello"',
    "an empty object": b"{}",
    "deep lists": b"[" * 60_000,
    "deep lists, closed": b"[" * 30_000 + b"]" * 30_000,
    "deep objects": b'{"a":' * 10_000,
    "a deep kind": b'{"kind":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "not UTF-8": b'{"kind":"\xff\xfe"}',
    "UTF-16": '{"kind":"hello"}'.encode("utf-16"),
    "half an escape": rb'{"kind":"\u12"}',
    "half a surrogate pair": rb'{"experiment":"\ud800","kind":"close"}',
    "cut off": b'{"kind":"hel',
    "something behind it": b'{"kind":"hello"}{}',
    "a number of 60 000 digits": b'{"kind":' + b"9" * 60_000 + b"}",
}


@pytest.mark.parametrize("header", HOSTILE_HEADERS.values(), ids=HOSTILE_HEADERS)
def test_a_hostile_header_is_refused_and_nothing_worse(header: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with pytest.raises(MessageError):
            decode(framed(header))


# --- hostile frames -------------------------------------------------------------------------------


def test_a_message_cut_off_anywhere_in_its_header_is_refused() -> None:
    data = framed(dumped(LEG), b"model")

    for length in range(len(data) - len(b"model")):
        with pytest.raises(MessageError):
            decode_request(data[:length])
    assert decode_request(data).payload == b"model"


def test_a_message_that_does_not_begin_with_the_magic_is_refused() -> None:
    data = framed(b'{"kind":"hello"}')

    assert isinstance(decode_request(data), Hello)
    for place in range(4):
        with pytest.raises(MessageError):
            decode_request(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


@pytest.mark.parametrize("claimed", [0, 1, 15, 17, 1000, 2**16, 2**31, 2**32 - 1])
def test_a_header_length_that_lies_is_refused(claimed: int) -> None:
    header = b'{"kind":"hello"}'  # 16 bytes
    data = b"FDC1" + claimed.to_bytes(4, "big") + header

    with pytest.raises(MessageError):
        decode_request(data + b"model")


def test_the_longest_header_is_64_kibibytes() -> None:
    def padded(size: int) -> bytes:
        return framed(b'{"kind":"' + b"x" * (size - 11) + b'"}')

    with pytest.raises(MessageError, match="kind"):  # read, and refused for what it says
        decode_request(padded(65_536))
    with pytest.raises(MessageError, match="too long"):
        decode_request(padded(65_537))


@given(requests)
def test_a_request_is_no_reply(request: Request) -> None:
    with pytest.raises(MessageError):
        decode_reply(encode(request))


@given(replies)
def test_a_reply_is_no_request(reply: Reply) -> None:
    with pytest.raises(MessageError):
        decode_request(encode(reply))


# --- signatures -----------------------------------------------------------------------------------

COORDINATOR = Identity.from_bytes(bytes(32))
STRANGER = Identity.from_bytes(bytes([1] * 32))
SIGNED = sign_request(Close(experiment="e1", payload=b"model"), COORDINATOR)


@WIDE
@given(requests)
def test_a_signed_request_comes_back_and_is_the_coordinators(request: Request) -> None:
    data = sign_request(request, COORDINATOR)

    assert data[:-64] == encode(request)
    assert decode_signed_request(data).payload == request.payload
    assert is_signed_by(COORDINATOR.public, data)
    assert not is_signed_by(STRANGER.public, data)


def test_a_signature_holds_for_every_bit_of_a_request() -> None:
    for place in range(len(SIGNED)):
        for bit in range(8):
            changed = bytearray(SIGNED)
            changed[place] ^= 1 << bit
            assert not is_signed_by(COORDINATOR.public, bytes(changed))


def test_a_request_cut_off_or_lengthened_is_not_the_coordinators() -> None:
    for length in range(len(SIGNED)):
        assert not is_signed_by(COORDINATOR.public, SIGNED[:length])
    assert not is_signed_by(COORDINATOR.public, SIGNED + b"\0")
    assert not is_signed_by(COORDINATOR.public, SIGNED[:-64] + b"\0" + SIGNED[-64:])


def test_a_signature_made_for_something_else_is_not_a_requests() -> None:
    body = SIGNED[:-64]
    for purpose in ("roster", "audit head", "announcement", "share", "descriptor", ""):
        for statement in (body, hashlib.sha256(body).digest()):
            assert not is_signed_by(COORDINATOR.public, body + COORDINATOR.sign(purpose, statement))


def test_what_is_too_short_for_a_signature_is_refused() -> None:
    for length in range(64 + 8):
        with pytest.raises(MessageError):
            decode_signed_request(SIGNED[:length])


# --- whatever comes in: a message with exactly these bytes, or MessageError -----------------------


def assert_read_exactly_or_refused(data: bytes) -> None:
    try:
        message = decode_either(data)
    except MessageError:
        return
    assert encode(message) == data


@WIDE
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_and_nothing_worse(data: bytes) -> None:
    for cut in range(0, len(data) + 1, 20):
        assert_read_exactly_or_refused(data[cut:])
        assert_read_exactly_or_refused(framed(data[cut:]))


def test_a_message_with_any_one_byte_changed_is_read_exactly_or_refused() -> None:
    for fields in (LEG, TRAINED):
        data = framed(dumped(fields))
        for place in range(len(data)):
            for byte in range(0, 256, 3):
                assert_read_exactly_or_refused(data[:place] + bytes([byte]) + data[place + 1 :])


@WIDE
@given(requests | replies, st.randoms(use_true_random=False))
def test_a_mutated_message_is_read_exactly_or_refused(
    message: Request | Reply, random: Random
) -> None:
    data = encode(message)
    for _ in range(30):
        place, removed = random.randrange(len(data) + 1), random.randrange(4)
        inserted = random.choice([b"", b"0", b'"', b",", b"}", b"\xff", b'"leg":1,', b"\0\0"])
        mutated = data[:place] + inserted + data[place + removed :]
        assert_read_exactly_or_refused(mutated)
        data = random.choice([data, mutated])


ODD_VALUES = [None, True, -1, 0, 0.0, 1e400, 2**53, 10**30, "", "x", "\0", [], [[]], {}, {"a": 1}]


@pytest.mark.parametrize("fields", [LEG, TRAINED], ids=["request", "reply"])
def test_well_formed_json_of_the_wrong_shape_is_refused_and_nothing_worse(
    fields: dict[str, Any],
) -> None:
    for key in (*LEG, *TRAINED, "code", "payload"):
        for value in ODD_VALUES:
            assert_read_exactly_or_refused(framed(dumped(fields | {key: value})))
            assert_read_exactly_or_refused(framed(dumped({"kind": fields["kind"], key: value})))


def _plain(value: object) -> object:
    return str(value) if isinstance(value, str) else value
