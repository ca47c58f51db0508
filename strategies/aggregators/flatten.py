"""Models as points in space and back: what robust aggregation computes with."""

from logging import WARNING
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from numpy.typing import NDArray

from operation.flower.logger import log

FloatArray = NDArray[np.float64]


class PointAggregator(Protocol):
    """A strategy that can also aggregate models given as the rows of a table."""

    def aggregate_points(
        self, server_round: int, points: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Return the aggregate of finite points."""


def models_as_points(replies: list[Message]) -> tuple[list[RecordDict], FloatArray]:
    """Return the contents of the replies with a finite model, and these models as rows.

    The order of the parameters is that of the keys in the first reply. One hospital whose training
    diverged must not turn a robust aggregate into NaN, so its model counts as missing.
    """
    contents: list[RecordDict] = []
    points: list[FloatArray] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for reply in replies:
        arrays = _only_model(reply.content)
        shapes = shapes or {key: array.shape for key, array in arrays.items()}
        for key, shape in shapes.items():
            if arrays[key].shape != shape:
                raise InconsistentMessageReplies(
                    f"the array {key!r} of node {reply.metadata.src_node_id} has shape "
                    f"{arrays[key].shape}, that of the first reply {shape}: all hospitals must "
                    "train the same model"
                )
        parts = [arrays[key].numpy().astype(np.float64).reshape(-1) for key in shapes]
        point = np.concatenate(parts) if parts else np.zeros(0)
        if np.isfinite(point).all():
            contents.append(reply.content)
            points.append(point)
        else:
            log(
                WARNING,
                "aggregate_train: the model of node %d holds values that are not finite "
                "and is left out",
                reply.metadata.src_node_id,
            )
    return contents, np.stack(points) if points else np.zeros((0, 0))


def point_as_model(point: FloatArray, *, like: RecordDict) -> ArrayRecord:
    """Return `point` with the keys, shapes and types of the model in the reply `like`."""
    model = ArrayRecord()
    start = 0
    for key, array in _only_model(like).items():
        old = array.numpy()
        values = point[start : start + old.size]
        model[key] = Array(values.reshape(old.shape).astype(old.dtype))
        start += old.size
    return model


def _only_model(content: RecordDict) -> ArrayRecord:
    return next(iter(content.array_records.values()))  # FedAvg has checked that there is one
