"""Replies of hospitals, as Flower passes them to a strategy."""

import time

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.app.message.message import make_message
from numpy.typing import NDArray

Model = dict[str, NDArray[np.floating]]


def reply(node: int, model: Model, examples: int = 1) -> Message:
    content = RecordDict(
        {
            "arrays": ArrayRecord({key: Array(value) for key, value in model.items()}),
            "metrics": MetricRecord({"num-examples": examples, "loss": float(node)}),
        }
    )
    return Message(content, reply_to=request(node))


def request(node: int) -> Message:
    metadata = Metadata(
        run_id=1,
        message_id="",
        src_node_id=1,
        dst_node_id=node,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=60.0,
        message_type="train",
    )
    # Message(..., dst_node_id=...) would ask for the run this process belongs to; there is none.
    return make_message(metadata, RecordDict())
