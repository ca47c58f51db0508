"""Requests and replies: what passes between the coordinator and a hospital, as exact bytes.

Every message is `magic · header length · header (canonical JSON) · payload`. The payload is a
descriptor, keys, a model or an envelope; neither the courier nor Flower looks into it. A request
ends with the coordinator's signature over all that comes before.
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
# No slash: hospitals file what they remember under `<experiment>/…`.
ExperimentId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
LegNumber = Annotated[int, Field(ge=1, lt=2**53)]  # shares travel at "leg" 0


class Carries(StrEnum):
    """What kind of model a request brings."""

    NOTHING = "nothing"  # train the model the hospital initialises itself
    AGGREGATE = "aggregate"  # the coordinator can read it
    ENVELOPE = "envelope"  # handed on by another hospital


class RefusalCode(StrEnum):
    """Why a hospital refused. A closed list that never depends on patient values."""

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
    INTERNAL_ERROR = "internal-error"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    payload: bytes = Field(default=b"", exclude=True, repr=False)


class _Reply(_Message):
    # The head of the hospital's audit trail after this reply.
    audit: AuditHead | None = None


class Hello(_Message):
    """Asks a hospital for its name, before there is an experiment."""

    kind: Literal["hello"] = "hello"


class SetUp(_Message):
    """Opens an experiment; the payload is its descriptor."""

    kind: Literal["set-up"] = "set-up"
    experiment: ExperimentId


class ExchangeKeyShares(_Message):
    """Shows everyone's announcements; the payload is a bundle of them by name."""

    kind: Literal["exchange-key-shares"] = "exchange-key-shares"
    experiment: ExperimentId


class OpenKeyShares(_Message):
    """Brings the shares sealed for this hospital; the payload is a bundle of them by sender."""

    kind: Literal["open-key-shares"] = "open-key-shares"
    experiment: ExperimentId


class TrainLeg(_Message):
    """Asks for one leg: train `local_rounds` rounds from `first_round` and answer.

    With a `recipient` the answer is handed over, sealed for that hospital; without one it is sent
    for aggregation. `sealed_in` is the leg in which the envelope it carries was sealed. `seen` is
    the highest head of the hospital's audit trail that the coordinator knows. Training settings are
    in the descriptor, not here.
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
    """Answers SetUp: the hospital agrees and announces its key for this experiment (the payload).

    The number of examples it trains on is absent where its policy keeps that to itself.
    """

    kind: Literal["announcement"] = "announcement"
    examples: Count | None


class KeyShares(_Reply):
    """Answers ExchangeKeyShares: this hospital's key share, sealed for each member."""

    kind: Literal["key-shares"] = "key-shares"


class Ready(_Reply):
    """Answers OpenKeyShares: the member key is made; equal tags show that all made the same."""

    kind: Literal["ready"] = "ready"
    confirmation: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Trained(_Reply):
    """Answers TrainLeg: the trained model (or its envelope) and how training went.

    The held-out figures are of the aggregate the request carried, before training; absent when it
    carried none or the hospital holds no data back.
    """

    kind: Literal["trained"] = "trained"
    leg: Count
    sealed: bool
    loss: float | None
    accuracy: float | None
    held_out_loss: float | None
    held_out_accuracy: float | None


class Closed(_Reply):
    """Answers Close: the final model on the hospital's own held-out data, if it has any."""

    kind: Literal["closed"] = "closed"
    held_out_loss: float | None
    held_out_accuracy: float | None


class Refusal(_Reply):
    """Answers anything a hospital will not do."""

    kind: Literal["refusal"] = "refusal"
    code: RefusalCode


Request = Hello | SetUp | ExchangeKeyShares | OpenKeyShares | TrainLeg | Close
Reply = Introduction | Announcement | KeyShares | Ready | Trained | Closed | Refusal
_M = TypeVar("_M", bound=_Message)
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_REPLY: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])


def encode(message: Request | Reply) -> bytes:
    """Return the message's bytes; equal messages are equal bytes."""
    return b"".join(_pieces(message))


def sign_request(request: Request, coordinator: Identity) -> bytes:
    """Return a request's bytes with the coordinator's signature."""
    pieces = _pieces(request)
    digest = hashlib.sha256()
    for piece in pieces:  # not joined twice: the payload may be a large model
        digest.update(piece)
    return b"".join((*pieces, coordinator.sign(_PURPOSE, digest.digest())))


def is_signed_by(coordinator: bytes, data: bytes) -> bool:
    """Say whether the coordinator with this public identity signed the request."""
    body, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    return verify(coordinator, _PURPOSE, hashlib.sha256(body).digest(), signature)


def decode_signed_request(data: bytes) -> Request:
    """Read a signed request; whether the signature is right, `is_signed_by` says."""
    if len(data) < SIGNATURE_BYTES:
        raise MessageError("too short for a signature")
    return decode_request(data[:-SIGNATURE_BYTES])


def decode_request(data: bytes) -> Request:
    """Read a request; anything but a well-formed one raises MessageError."""
    return _decode(_REQUEST, data)


def decode_reply(data: bytes) -> Reply:
    """Read a reply; anything but a well-formed one raises MessageError."""
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
