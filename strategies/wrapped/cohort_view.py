"""The Grid that a wrapped strategy sees while it configures a leg."""

from collections.abc import Iterable, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from operation.flower.grid import MessageMaker, Run


class CohortView(MessageMaker):
    """A Grid on which exactly the leg's cohort is connected; nothing can be sent through it."""

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        self._grid = grid
        self._nodes = list(nodes)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    @property
    def run(self) -> Run:
        return self._grid.run

    def set_run(self, run: Run) -> None:
        raise RuntimeError(_READ_ONLY)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise RuntimeError(_READ_ONLY)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise RuntimeError(_READ_ONLY)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        raise RuntimeError(_READ_ONLY)


_READ_ONLY = "a wrapped strategy configures a leg and aggregates; sending is FedDC's part"
