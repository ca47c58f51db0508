"""Messages as bytes: what is written can be read by hand, in one form only, and is signed."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from protocol.audit_head import AuditHead
from protocol.message_bytes import (
    decode_reply,
    decode_request,
    decode_signed_reply,
    decode_signed_request,
    encode,
    is_reply_by,
    is_signed_by,
    sign_reply,
    sign_request,
)
from protocol.messages import (
    Carries,
    Close,
    Closed,
    Hello,
    MessageError,
    Reply,
    Request,
    SetUp,
    TrainLeg,
)
from protocol.sealing.keys import Identity
from tests.protocol.any_message import LEG, TRAINED, WIDE, dumped, framed, replies, requests

COORDINATOR = Identity.from_bytes(bytes(32))
STRANGER = Identity.from_bytes(bytes([1] * 32))

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
    signed = sign_request(request, COORDINATOR, study="hearts", hospital="south")
    assert signed[:-64] == (
        b'FDC2\x00\x00\x00\xd4{"carries":"envelope","cohort":null,"experiment":"e1","first_round":4,'
        b'"hospital":"south","kind":"train-leg","leg":3,"local_rounds":2,"recipient":"north",'
        b'"sealed_in":2,"seen":null,"study":"hearts","vouchers":null}\x00sealed'
    )


@WIDE
@given(requests | replies)
def test_a_message_read_by_hand_has_its_fields_and_its_payload(message: Request | Reply) -> None:
    data = encode(message)
    length = int.from_bytes(data[4:8], "big")
    fields = json.loads(data[8 : 8 + length])

    assert data[:4] == b"FDC2"
    assert data[8 + length :] == message.payload
    assert fields.keys() == type(message).model_fields.keys() - {"payload"}
    for name, value in fields.items():
        # repr: tells 0.0 from -0.0, and 1 from True.
        told = getattr(message, name)
        expected = dict(sorted(told)) if isinstance(told, AuditHead) else _plain(told)
        assert repr(value) == repr(expected)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return dict(sorted(value.items()))
    return str(value) if isinstance(value, str) else value


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
    request = Close(study="s", hospital="h", experiment="e", payload=bytes(1_000_000))

    assert len(encode(request)) < 1_000_000 + 100


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


# --- signatures -----------------------------------------------------------------------------------

SIGNED = sign_request(
    Close(experiment="e1", payload=b"model"), COORDINATOR, study="hearts", hospital="south"
)


@WIDE
@given(requests)
def test_a_signed_request_comes_back_and_is_the_coordinators(request: Request) -> None:
    data = sign_request(request, COORDINATOR, study="hearts", hospital="south")

    back = decode_signed_request(data)
    assert (back.study, back.hospital) == ("hearts", "south")
    assert back.model_copy(update={"study": request.study, "hospital": request.hospital}) == request
    assert back.payload == request.payload
    assert is_signed_by(COORDINATOR.public, data)
    assert not is_signed_by(STRANGER.public, data)


def test_a_request_without_an_address_is_refused() -> None:
    for request in (Close(experiment="e1"), Close(experiment="e1", study="hearts"), Hello()):
        with pytest.raises(MessageError, match=r"hospital|study"):
            decode_request(encode(request))


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
    for purpose in ("roster", "audit head", "announcement", "key share", "descriptor", ""):
        for statement in (body, hashlib.sha256(body).digest()):
            assert not is_signed_by(COORDINATOR.public, body + COORDINATOR.sign(purpose, statement))


def test_what_is_too_short_for_a_signature_is_refused() -> None:
    for length in range(64 + 8):
        with pytest.raises(MessageError):
            decode_signed_request(SIGNED[:length])


# --- signed replies -------------------------------------------------------------------------------

ASKED: dict[str, Any] = {
    "study": "hearts",
    "hospital": "south",
    "request": hashlib.sha256(SIGNED).digest(),
}


@WIDE
@given(replies)
def test_a_signed_reply_comes_back_and_is_the_hospitals(reply: Reply) -> None:
    data = sign_reply(reply, STRANGER, **ASKED)

    assert repr(decode_signed_reply(data)) == repr(reply)
    assert decode_signed_reply(data).payload == reply.payload
    assert is_reply_by(STRANGER.public, data, **ASKED)
    assert not is_reply_by(COORDINATOR.public, data, **ASKED)


@pytest.mark.parametrize(
    "another", [{"study": "lungs"}, {"hospital": "north"}, {"request": bytes(32)}]
)
def test_a_reply_answers_one_request_of_one_study_by_one_hospital(another: dict[str, Any]) -> None:
    data = sign_reply(Closed(held_out_loss=None, held_out_accuracy=0.5), STRANGER, **ASKED)

    assert not is_reply_by(STRANGER.public, data, **(ASKED | another))


def test_a_signature_holds_for_every_byte_of_a_reply() -> None:
    data = sign_reply(
        Closed(held_out_loss=None, held_out_accuracy=0.5, payload=b"model"), STRANGER, **ASKED
    )
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert not is_reply_by(STRANGER.public, changed, **ASKED)
        with pytest.raises(MessageError):
            decode_signed_reply(data[: min(place, 64 + 7)])
