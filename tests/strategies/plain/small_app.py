"""A ClientApp as a Flower user writes it, on a least-squares task of each node's own."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from lab.flower.in_process import InProcessGrid

FEATURES = 4
FIRST = {"w": np.zeros(FEATURES), "b": np.zeros(1), "steps": np.zeros((), np.int64)}


def examples_of(node: int) -> int:
    return 3 + (node - 100) % 5


def local_update(node: int, model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One gradient step on the node's own examples."""
    rng = np.random.default_rng(node)
    count = examples_of(node)
    x, y = rng.normal(size=(count, FEATURES)), rng.normal(size=count)
    error = x @ model["w"] + model["b"] - y
    return {
        "w": model["w"] - 0.1 * x.T @ error / count,
        "b": model["b"] - 0.1 * error.mean(keepdims=True),
        "steps": np.asarray(model["steps"] + 1),
    }


def make_app(
    *, evaluates: bool = True, mods: Any = None, app: ClientApp | None = None
) -> ClientApp:
    """Return a ClientApp for the task, or give `app` its functions."""
    app = app or ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        model = local_update(context.node_id, {n: a.numpy() for n, a in arrays.items()})
        metrics: dict[str, Any] = {
            "train_loss": float(np.abs(model["w"]).sum()),
            "num-examples": examples_of(context.node_id),
        }
        content = {"arrays": record(model), "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=message)

    if evaluates:

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            metrics = MetricRecord({"eval_loss": 1.0, "num-examples": examples_of(context.node_id)})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def record(model: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})


class WatchedGrid(InProcessGrid):
    """Notes what passes; `silent(round, node)` never replies, `connected` can be changed."""

    def __init__(self, app: ClientApp, nodes: int) -> None:
        super().__init__(app, nodes, {})
        self.connected: list[int] | None = None
        self.sent: list[Message] = []
        self.replies: list[Message] = []
        self.silent: Any = lambda server_round, node: False

    @property
    def contexts(self) -> list[Context]:
        """The nodes' contexts, in their order."""
        return list(self._contexts.values())

    def get_node_ids(self) -> Iterable[int]:
        return list(super().get_node_ids()) if self.connected is None else list(self.connected)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        self.sent += sent
        return super().push_messages(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = []
        for identifier in message_ids:
            message = self._pending.get(identifier)
            if message is not None and self.silent(round_of(message), message.metadata.dst_node_id):
                continue
            replies += super().pull_messages([identifier])
        self.replies += replies
        return replies


def round_of(message: Message) -> int:
    config = message.content.config_records.get("config", {})
    return int(config.get("server-round", 0))  # type: ignore[arg-type]
