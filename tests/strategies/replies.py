"""Replies of hospitals, as Flower passes them to a strategy, and what all aggregators do."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.app.message.message import make_message
from flwr.serverapp.strategy import FedAvg
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


def assert_one_point_of_the_whole_model(
    strategy: FedAvg, point_of: Callable[[NDArray[np.float64]], NDArray[np.float64]], *, models: int
) -> None:
    """Check that a strategy aggregates models of several types as flat points.

    Names, their order, shapes and types are kept, and the replies are left alone.
    """
    generator = np.random.default_rng(7)
    sent: list[Model] = [
        {
            "z.weight": generator.standard_normal((2, 1)).astype(np.float32),
            "a.bias": generator.standard_normal(1),
            "scale": np.array(generator.standard_normal(), dtype=np.float16),
        }
        for _ in range(models)
    ]
    replies = [reply(node, model) for node, model in enumerate(sent)]
    replies[3] = reply(3, dict(reversed(sent[3].items())))
    aggregate, _ = strategy.aggregate_train(1, replies)
    assert aggregate is not None

    assert [(key, array.dtype, array.shape) for key, array in aggregate.items()] == [
        ("z.weight", "float32", (2, 1)),
        ("a.bias", "float64", (1,)),
        ("scale", "float16", ()),
    ]
    flat = np.array([np.concatenate([part.ravel() for part in each.values()]) for each in sent])
    got = np.concatenate([array.numpy().ravel() for array in aggregate.values()])
    assert got == pytest.approx(point_of(flat), abs=1e-3)  # float16
    assert got[2] == pytest.approx(point_of(flat)[2], abs=1e-15)  # float64
    for message, model in zip(replies, sent, strict=True):
        kept = message.content.array_records["arrays"]
        assert all(np.array_equal(kept[key].numpy(), model[key]) for key in model)
