"""Requests and replies: what passes between the coordinator and a hospital, as exact bytes.

Every message is `magic · header length · header (canonical JSON) · payload`. The payload is a
descriptor, a model or an envelope; neither the courier nor Flower looks into it.
"""

from enum import StrEnum
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .canonical import canonical_json, read_canonical

MAGIC = b"FDC1"
_PREFIX = len(MAGIC) + 4
MAX_HEADER = 64 * 1024

# No control characters and no line breaks: names are written to logs.
Name = Annotated[str, Field(max_length=200, pattern=r"^[^\p{Cc}\p{Zl}\p{Zp}]+$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class MessageError(ValueError):
    """The bytes are not a message in the agreed form."""


class Carries(StrEnum):
    """What kind of model a request brings."""

    NOTHING = "nothing"  # train the model the hospital initialises itself
    AGGREGATE = "aggregate"  # the coordinator can read it
    ENVELOPE = "envelope"  # handed on by another hospital


class RefusalCode(StrEnum):
    """Why a hospital refused. A closed list that never depends on patient values."""

    MALFORMED = "malformed"
    UNKNOWN_EXPERIMENT = "unknown-experiment"
    NOT_A_MEMBER = "not-a-member"
    DESCRIPTOR_REFUSED = "descriptor-refused"
    MODEL_MISMATCH = "model-mismatch"
    NOT_FINITE = "not-finite"
    ROUNDS_REFUSED = "rounds-refused"
    INTERNAL_ERROR = "internal-error"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    payload: bytes = Field(default=b"", exclude=True, repr=False)


class Hello(_Message):
    """Asks a hospital for its name, before there is an experiment."""

    kind: Literal["hello"] = "hello"


class SetUp(_Message):
    """Opens an experiment; the payload is its descriptor."""

    kind: Literal["set-up"] = "set-up"
    experiment: Name


class TrainLeg(_Message):
    """Asks for one leg: train `local_rounds` rounds from `first_round` and answer.

    With a `recipient` the answer is handed over, sealed for that hospital; without one it is sent
    for aggregation. Training settings are in the descriptor, not here.
    """

    kind: Literal["train-leg"] = "train-leg"
    experiment: Name
    leg: Count
    first_round: Count
    local_rounds: Count
    carries: Carries
    recipient: Name | None


class Close(_Message):
    """Ends an experiment and delivers the final model."""

    kind: Literal["close"] = "close"
    experiment: Name


class Introduction(_Message):
    """Answers Hello."""

    kind: Literal["introduction"] = "introduction"
    hospital: Name


class Announcement(_Message):
    """Answers SetUp: the hospital agrees, and says how many examples it trains on."""

    kind: Literal["announcement"] = "announcement"
    examples: Count


class Trained(_Message):
    """Answers TrainLeg: the trained model (or its envelope) and how training went.

    The held-out figures are of the aggregate the request carried, before training; absent when it
    carried none or the hospital holds no data back.
    """

    kind: Literal["trained"] = "trained"
    leg: Count
    sealed: bool
    loss: float
    accuracy: float
    held_out_loss: float | None
    held_out_accuracy: float | None


class Closed(_Message):
    """Answers Close: the final model on the hospital's own held-out data, if it has any."""

    kind: Literal["closed"] = "closed"
    held_out_loss: float | None
    held_out_accuracy: float | None


class Refusal(_Message):
    """Answers anything a hospital will not do."""

    kind: Literal["refusal"] = "refusal"
    code: RefusalCode


Request = Hello | SetUp | TrainLeg | Close
Reply = Introduction | Announcement | Trained | Closed | Refusal
_M = TypeVar("_M", bound=_Message)
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_REPLY: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])


def encode(message: Request | Reply) -> bytes:
    """Return the message's bytes; equal messages are equal bytes."""
    header = canonical_json(message)
    return b"".join((MAGIC, len(header).to_bytes(4, "big"), header, message.payload))


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


def _parts(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _PREFIX or data[: len(MAGIC)] != MAGIC:
        raise MessageError("does not begin like a message")
    end = _PREFIX + int.from_bytes(data[len(MAGIC) : _PREFIX], "big")
    if end > _PREFIX + MAX_HEADER or len(data) < end:
        raise MessageError("header is truncated or too long")
    return data[_PREFIX:end], data[end:]
