"""What hospitals contribute to one aggregation, and a strategy that returns what it is told."""

from collections.abc import Callable, Iterable

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from protocol.model_bytes import ModelState
from strategies.wrapped.adapter import Contribution


def contribution(value: float, counter: int, weight: float = 1.0) -> Contribution:
    parameters = {"w": np.full(2, value, np.float32)}
    buffers = {"steps": np.array(counter), "var": np.array([value], np.float32)}
    return Contribution(100 + counter, ModelState(parameters, buffers), weight, 0.0, 1.0)


class Returning(FedAvg):
    """Returns whatever it was told to."""

    def __init__(self, change: Callable[[ArrayRecord], ArrayRecord | None]) -> None:
        super().__init__()
        self.change = change

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        return self.change(arrays), metrics
