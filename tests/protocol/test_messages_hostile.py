"""Messages as bytes: nothing but what is agreed is ever accepted, and nothing worse happens."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.message_bytes import decode_reply, decode_request, encode
from protocol.messages import Hello, MessageError, Reply, Request
from tests.protocol.any_message import LEG, TRAINED, WIDE, dumped, framed, replies, requests

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
    "for no hospital": {"hospital": ""},
    "for a hospital with a line break": {"hospital": "south\n"},
    "in no study": {"study": ""},
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
    data = framed(b'{"hospital":"south","kind":"hello","study":"hearts"}')

    assert isinstance(decode_request(data), Hello)
    for place in range(4):
        with pytest.raises(MessageError):
            decode_request(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


@pytest.mark.parametrize("claimed", [0, 1, 51, 53, 1000, 2**16, 2**31, 2**32 - 1])
def test_a_header_length_that_lies_is_refused(claimed: int) -> None:
    header = b'{"hospital":"south","kind":"hello","study":"hearts"}'  # 52 bytes
    data = b"FDC2" + claimed.to_bytes(4, "big") + header

    with pytest.raises(MessageError):
        decode_request(data + b"model")


def test_the_longest_header_is_64_kibibytes() -> None:
    def padded(size: int) -> bytes:
        return framed(b'{"kind":"' + b"x" * (size - 11) + b'"}')

    with pytest.raises(MessageError, match="Input tag"):  # read, and refused for what it says
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


# --- whatever comes in: a message with exactly these bytes, or MessageError -----------------------


def assert_read_exactly_or_refused(data: bytes) -> None:
    try:
        message = decode_either(data)
    except MessageError:
        return
    assert encode(message) == data


def decode_either(data: bytes) -> Request | Reply:
    try:
        return decode_request(data)
    except MessageError:
        return decode_reply(data)


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
