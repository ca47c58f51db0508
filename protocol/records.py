"""Messages as Flower records: one opaque array, which Flower sends in chunks."""

from flwr.app import Array, ArrayRecord, RecordDict

from .errors import MessageError

_RECORD, _ARRAY = "feddc", "message"


def to_records(data: bytes) -> RecordDict:
    """Wrap a message's bytes in a record."""
    array = Array(dtype="uint8", shape=(len(data),), stype="feddc", data=data)
    return RecordDict({_RECORD: ArrayRecord({_ARRAY: array})})


def from_records(records: RecordDict) -> bytes:
    """Unwrap a message's bytes; raise MessageError if the record holds none."""
    record = records.get(_RECORD)
    if not isinstance(record, ArrayRecord) or set(record) != {_ARRAY}:
        raise MessageError("not a FedDC message")
    return record[_ARRAY].data
