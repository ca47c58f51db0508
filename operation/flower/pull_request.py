"""The SuperNode's request for messages, as far as a long-polling proxy reads it."""

from flwr.proto.fleet_pb2 import PullMessagesRequest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]


def node_of(body: bytes) -> int | None:
    """Return the id of the SuperNode that asks, or None if the body is malformed."""
    try:
        return int(PullMessagesRequest.FromString(body).node.node_id)
    except DecodeError:
        return None
