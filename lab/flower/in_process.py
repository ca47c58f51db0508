"""The same ServerApp and ClientApp without Ray: hospitals are called in this process, in turn.

For tests and for runs of tens of thousands of client-rounds, where Ray's overhead would dominate.
Messages are not serialised, so Ray and real deployments have tests of their own.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from client_app.courier import app as courier
from operation.config import Scalar
from operation.flower.grid import MessageMaker, Run, set_message_id, set_task_identity
from server_app.config.run_config import Settings

_CLIENT_APP_RAISED = 2  # Flower's own code for it


def simulate_in_process(settings: Settings, run_dir: Path) -> dict[str, Any]:
    """Run an experiment in this process; return its summary."""
    from server_app.run.simulated_run import run  # imports torch, which the Grid does not need

    settings = settings.replace(run_dir=str(run_dir))
    grid = InProcessGrid(courier, settings.algorithm.hospitals, settings.as_config())
    return run(grid, settings)


class InProcessGrid(MessageMaker):
    """A Grid that calls a ClientApp, one node at a time, when a reply is pulled."""

    def __init__(self, client_app: ClientApp, nodes: int, run_config: Mapping[str, Scalar]) -> None:
        # Flower gives messages the identity of the task that sends them; here that is this process.
        set_task_identity(run_id=1, node_id=1, task_id=1)
        self._client_app = client_app
        self._contexts = {
            100 + position: Context(
                run_id=1,
                node_id=100 + position,
                node_config={"partition-id": position, "num-partitions": nodes},
                state=RecordDict(),
                run_config=dict(run_config),
            )
            for position in range(nodes)
        }
        self._pending: dict[str, Message] = {}

    @classmethod
    def without_clients(cls) -> "InProcessGrid":
        """Return a Grid for strategies that only configure and aggregate."""
        return cls(courier, 0, {})

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            identifier = str(uuid4())
            set_message_id(message, identifier)
            self._pending[identifier] = message
            ids.append(identifier)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        pending = [self._pending.pop(i) for i in list(message_ids) if i in self._pending]
        return [self._deliver(message) for message in pending]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [reply for i in self.push_messages(messages) for reply in self.pull_messages([i])]

    @property
    def run(self) -> Run:
        return Run.create_empty(1)

    def set_run(self, run: Run) -> None:
        """There is one run only."""

    def _deliver(self, message: Message) -> Message:
        context = self._contexts[message.metadata.dst_node_id]
        try:
            return self._client_app(message, context)
        except Exception as error:  # like Flower: the run continues without this reply
            return Message(Error(code=_CLIENT_APP_RAISED, reason=str(error)), reply_to=message)
