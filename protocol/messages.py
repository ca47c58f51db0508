"""Requests and replies between the coordinator and a hospital, as exact bytes.

Every message is `magic · header length · header (canonical JSON) · payload`. The payload is a
descriptor, keys, a model or an envelope; the courier and Flower do not interpret it. A request ends
with the coordinator's signature over all preceding bytes.
"""

import hashlib
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .audit_head import AuditHead
from .canonical import canonical_json, read_canonical
from .errors import MessageError as MessageError
from .keys import SIGNATURE_BYTES, Identity, verify

MAGIC = b"FDC1"
_PREFIX = len(MAGIC) + 4
_PURPOSE = "request"
MAX_HEADER = 64 * 1024

# No control characters and no line breaks: names are written to logs.
Name = Annotated[str, Field(max_length=200, pattern=r"^[^\p{Cc}\p{Zl}\p{Zp}]+$")]
# No slash: hospitals store the state of an experiment under `<experiment>/…`.
ExperimentId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
LegNumber = Annotated[int, Field(ge=1, lt=2**53)]  # key shares are sealed at leg 0


class Carries(StrEnum):
    """What kind of model a request carries."""

    NOTHING = "nothing"  # the hospital trains a model that it initialises itself
    AGGREGATE = "aggregate"  # the coordinator can read it
    ENVELOPE = "envelope"  # handed over by another hospital


class RefusalCode(StrEnum):
    """Why a hospital refused. A closed list; the choice never depends on patient values."""

    TOO_LARGE = "too-large"
    MALFORMED = "malformed"
    BAD_SIGNATURE = "bad-signature"
    ROLLED_BACK = "rolled-back"
    UNKNOWN_EXPERIMENT = "unknown-experiment"
    ANOTHER_ROSTER = "another-roster"
    DESCRIPTOR_REFUSED = "descriptor-refused"
    AGAINST_POLICY = "against-policy"
    KEYS_REFUSED = "keys-refused"
    NOT_SET_UP = "not-set-up"
    OLD_LEG = "old-leg"
    CONFLICTING_REQUEST = "conflicting-request"
    ROUNDS_REFUSED = "rounds-refused"
    REPLAYED = "replayed"
    ENVELOPE_REFUSED = "envelope-refused"
    MODEL_MISMATCH = "model-mismatch"
    NOT_FINITE = "not-finite"
    UNKNOWN_RECIPIENT = "unknown-recipient"
    TOO_MANY_TO_ONE = "too-many-to-one"
    DISK_FULL = "disk-full"
    INTERNAL_ERROR = "internal-error"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    payload: bytes = Field(default=b"", exclude=True, repr=False)


class _Reply(_Message):
    # The head of the hospital's audit log after this reply.
    audit: AuditHead | None = None


class Hello(_Message):
    """Asks a hospital for its name, before an experiment exists."""

    kind: Literal["hello"] = "hello"


class SetUp(_Message):
    """Asks a hospital to agree to an experiment; the payload is its descriptor."""

    kind: Literal["set-up"] = "set-up"
    experiment: ExperimentId


class ExchangeKeyShares(_Message):
    """Delivers all announcements and asks for key shares; the payload is a bundle by name."""

    kind: Literal["exchange-key-shares"] = "exchange-key-shares"
    experiment: ExperimentId


class OpenKeyShares(_Message):
    """Delivers the key shares sealed for this hospital; the payload is a bundle by sender."""

    kind: Literal["open-key-shares"] = "open-key-shares"
    experiment: ExperimentId


class TrainLeg(_Message):
    """Asks for one leg: train `local_rounds` rounds from `first_round` and answer.

    With a `recipient` the answer is sealed for that hospital and handed over; without one it is
    sent for aggregation. `sealed_in` is the leg in which the carried envelope was sealed. `seen` is
    the latest head of the hospital's audit log that the coordinator has received. Training settings
    are in the descriptor.
    """

    kind: Literal["train-leg"] = "train-leg"
    experiment: ExperimentId
    leg: LegNumber
    first_round: Count
    local_rounds: Count
    carries: Carries
    sealed_in: Count | None = None
    recipient: Name | None
    seen: AuditHead | None = None


class Close(_Message):
    """Ends an experiment and delivers the final model."""

    kind: Literal["close"] = "close"
    experiment: ExperimentId


class Introduction(_Reply):
    """Answers Hello."""

    kind: Literal["introduction"] = "introduction"
    hospital: Name


class Announcement(_Reply):
    """Answers SetUp: the hospital agrees and announces its sealing key (the payload).

    `examples`, the number it trains on, is absent if its policy does not disclose it.
    """

    kind: Literal["announcement"] = "announcement"
    examples: Count | None


class KeyShares(_Reply):
    """Answers ExchangeKeyShares: this hospital's key share, sealed for each member."""

    kind: Literal["key-shares"] = "key-shares"


class Ready(_Reply):
    """Answers OpenKeyShares: the member key is derived; equal tags show that all are equal."""

    kind: Literal["ready"] = "ready"
    confirmation: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Trained(_Reply):
    """Answers TrainLeg: the trained model (or its envelope) and the training metrics.

    The held-out metrics are those of the aggregate that the request carried, before training; they
    are absent if it carried none or the hospital has no held-out data.
    """

    kind: Literal["trained"] = "trained"
    leg: Count
    sealed: bool
    loss: float | None
    accuracy: float | None
    held_out_loss: float | None
    held_out_accuracy: float | None


class Closed(_Reply):
    """Answers Close: metrics of the final model on the hospital's held-out data, if it has any."""

    kind: Literal["closed"] = "closed"
    held_out_loss: float | None
    held_out_accuracy: float | None


class Refusal(_Reply):
    """Answers a request that the hospital does not serve."""

    kind: Literal["refusal"] = "refusal"
    code: RefusalCode


Request = Hello | SetUp | ExchangeKeyShares | OpenKeyShares | TrainLeg | Close
Reply = Introduction | Announcement | KeyShares | Ready | Trained | Closed | Refusal
_M = TypeVar("_M", bound=_Message)
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_REPLY: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])


def encode(message: Request | Reply) -> bytes:
    """Return the message's bytes; equal messages have equal bytes."""
    return b"".join(_pieces(message))


def sign_request(request: Request, coordinator: Identity) -> bytes:
    """Return a request's bytes with the coordinator's signature."""
    pieces = _pieces(request)
    digest = hashlib.sha256()
    for piece in pieces:  # without joining them first: the payload may be a large model
        digest.update(piece)
    return b"".join((*pieces, coordinator.sign(_PURPOSE, digest.digest())))


def is_signed_by(coordinator: bytes, data: bytes) -> bool:
    """Return whether the coordinator with this public identity signed the request."""
    body, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    return verify(coordinator, _PURPOSE, hashlib.sha256(body).digest(), signature)


def decode_signed_request(data: bytes) -> Request:
    """Parse a signed request. The signature is not verified: call `is_signed_by`."""
    if len(data) < SIGNATURE_BYTES:
        raise MessageError("too short for a signature")
    return decode_request(data[:-SIGNATURE_BYTES])


def decode_request(data: bytes) -> Request:
    """Parse a request; raise MessageError if it is malformed."""
    return _decode(_REQUEST, data)


def decode_reply(data: bytes) -> Reply:
    """Parse a reply; raise MessageError if it is malformed."""
    return _decode(_REPLY, data)


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
