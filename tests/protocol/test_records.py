"""How Flower carries messages: the very bytes go in and come out, also over Flower's wire."""

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import MessageError
from protocol.records import from_records, to_records


@given(st.binary(max_size=300))
def test_a_message_comes_out_as_it_went_in(data: bytes) -> None:
    assert from_records(to_records(data)) == data


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_a_message_survives_flowers_wire_format(size: int) -> None:
    data = bytes(byte % 251 for byte in range(size))

    sent = recorddict_to_proto(to_records(data)).SerializeToString()

    assert len(sent) < size + 200  # opaque bytes, not a list of numbers
    received = type(recorddict_to_proto(RecordDict())).FromString(sent)
    assert from_records(recorddict_from_proto(received)) == data


def array(data: bytes) -> Array:
    return Array(dtype="uint8", shape=(len(data),), stype="feddc", data=data)


NOT_OURS: dict[str, RecordDict] = {
    "nothing": RecordDict(),
    "another record": RecordDict({"arrays": ArrayRecord({"message": array(b"x")})}),
    "a config record": RecordDict({"feddc": ConfigRecord({"message": b"x"})}),
    "a metric record": RecordDict({"feddc": MetricRecord({"message": 1})}),
    "an empty record": RecordDict({"feddc": ArrayRecord()}),
    "another array": RecordDict({"feddc": ArrayRecord({"model": array(b"x")})}),
    "one array more": RecordDict(
        {"feddc": ArrayRecord({"message": array(b"x"), "more": array(b"y")})}
    ),
}


@pytest.mark.parametrize("records", NOT_OURS.values(), ids=NOT_OURS)
def test_records_of_another_form_are_no_message(records: RecordDict) -> None:
    with pytest.raises(MessageError, match="not a FedDC message"):
        from_records(records)
