"""The exact bytes of requests and replies, and their signatures.

Every message is `magic · header length · header (canonical JSON) · payload · signature`. The
coordinator signs a request, which names the study and the hospital it is for. The hospital signs
its reply together with the study, its name and the digest of the request.
"""

import hashlib
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from .canonical import canonical_json, prefixed, read_canonical
from .messages import MessageError, Reply, Request
from .sealing.keys import SIGNATURE_BYTES, Identity, verify

MAGIC = b"FDC2"
_PREFIX = len(MAGIC) + 4
_REQUEST_PURPOSE, _REPLY_PURPOSE = "request", "reply"
MAX_HEADER = 64 * 1024

_M = TypeVar("_M", bound=BaseModel)
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_REPLY: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])


def encode(message: Request | Reply) -> bytes:
    """Return the message's bytes; equal messages have equal bytes."""
    return b"".join(_pieces(message))


def sign_request(request: Request, coordinator: Identity, *, study: str, hospital: str) -> bytes:
    """Address a request to a hospital of a study, and return its bytes with the signature."""
    pieces = _pieces(request.model_copy(update={"study": study, "hospital": hospital}))
    return b"".join((*pieces, coordinator.sign(_REQUEST_PURPOSE, _digest(pieces))))


def is_signed_by(coordinator: bytes, data: bytes) -> bool:
    """Return whether the coordinator with this public identity signed the request."""
    body, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    return verify(coordinator, _REQUEST_PURPOSE, hashlib.sha256(body).digest(), signature)


def decode_signed_request(data: bytes) -> Request:
    """Parse a signed request. The signature is not verified: call `is_signed_by`."""
    return decode_request(_without_signature(data))


def sign_reply(
    reply: Reply, identity: Identity, *, study: str, hospital: str, request: bytes
) -> bytes:
    """Return a reply's bytes with the hospital's signature; `request` is the request's digest."""
    pieces = _pieces(reply)
    statement = _reply_statement(study, hospital, request, _digest(pieces))
    return b"".join((*pieces, identity.sign(_REPLY_PURPOSE, statement)))


def is_reply_by(identity: bytes, data: bytes, *, study: str, hospital: str, request: bytes) -> bool:
    """Return whether the hospital with this public identity answered this very request so."""
    body, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    statement = _reply_statement(study, hospital, request, hashlib.sha256(body).digest())
    return verify(identity, _REPLY_PURPOSE, statement, signature)


def decode_signed_reply(data: bytes) -> Reply:
    """Parse a signed reply. The signature is not verified: call `is_reply_by`."""
    return decode_reply(_without_signature(data))


def decode_request(data: bytes) -> Request:
    """Parse a request; raise MessageError if it is malformed."""
    return _decode(_REQUEST, data)


def decode_reply(data: bytes) -> Reply:
    """Parse a reply; raise MessageError if it is malformed."""
    return _decode(_REPLY, data)


def _digest(pieces: tuple[bytes, ...]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:  # without joining them first: the payload may be a large model
        digest.update(piece)
    return digest.digest()


def _reply_statement(study: str, hospital: str, request: bytes, reply: bytes) -> bytes:
    return b"".join(prefixed(part) for part in (study.encode(), hospital.encode(), request, reply))


def _without_signature(data: bytes) -> bytes:
    if len(data) < SIGNATURE_BYTES:
        raise MessageError("too short for a signature")
    return data[:-SIGNATURE_BYTES]


def _decode(adapter: TypeAdapter[_M], data: bytes) -> _M:
    header, payload = _parts(data)
    try:
        message = read_canonical(adapter, header)
    except ValueError as error:
        raise MessageError(f"header: {error}") from error
    return message.model_copy(update={"payload": payload})


def _pieces(message: Request | Reply) -> tuple[bytes, ...]:
    header = canonical_json(message)
    return MAGIC, len(header).to_bytes(4, "big"), header, message.payload


def _parts(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _PREFIX or data[: len(MAGIC)] != MAGIC:
        raise MessageError("does not begin like a message")
    end = _PREFIX + int.from_bytes(data[len(MAGIC) : _PREFIX], "big")
    if end > _PREFIX + MAX_HEADER or len(data) < end:
        raise MessageError("header is truncated or too long")
    return data[_PREFIX:end], data[end:]
