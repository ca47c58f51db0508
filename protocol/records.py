"""How Flower carries our messages: one opaque array, which it sends in chunks."""

from flwr.app import Array, ArrayRecord, RecordDict

from .errors import MessageError

_RECORD, _ARRAY = "feddc", "message"


def to_records(data: bytes) -> RecordDict:
    """Wrap a message's bytes."""
    array = Array(dtype="uint8", shape=(len(data),), stype="feddc", data=data)
    return RecordDict({_RECORD: ArrayRecord({_ARRAY: array})})


def from_records(records: RecordDict) -> bytes:
    """Unwrap a message's bytes; anything else raises MessageError."""
    record = records.get(_RECORD)
    if not isinstance(record, ArrayRecord) or set(record) != {_ARRAY}:
        raise MessageError("not a FedDC message")
    return record[_ARRAY].data
