"""A Grid that sends messages and yields replies one by one, so that models never pile up."""

from collections.abc import Iterable, Iterator
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from operation.clock import Clock
from operation.flower.grid import Run

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0
_BATCH_BYTES = 128 * 2**20  # of replies pulled in one call


class StreamingGrid(Grid):
    """Passes everything on to another Grid, but sends and receives as an iterator.

    Flower's own `send_and_receive` holds all messages, then all replies, in memory.
    `message_bytes` is about the size of a reply.
    """

    def __init__(self, grid: Grid, message_bytes: int, clock: Clock | None = None) -> None:
        self._grid = grid
        self._batch = max(1, _BATCH_BYTES // max(1, message_bytes))
        self._clock = clock or Clock()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterator[Message]:
        deadline = None if timeout is None else self._clock.now() + timeout
        waiting: list[str] = []
        for message in messages:
            # A SuperLink gives a message it can't deliver an empty id; its node counts as silent.
            waiting += [sent for sent in self._grid.push_messages([message]) if sent]
        pause = _FIRST_PAUSE
        while waiting and (deadline is None or self._clock.now() < deadline):
            arrived: set[str] = set()
            for start in range(0, len(waiting), self._batch):
                for reply in self._grid.pull_messages(waiting[start : start + self._batch]):
                    arrived.add(reply.metadata.reply_to_message_id)
                    yield reply
            waiting = [sent for sent in waiting if sent not in arrived]
            pause = _FIRST_PAUSE if arrived else min(1.5 * pause, _LONGEST_PAUSE)
            if waiting:
                self._clock.sleep(pause)

    # --- the other Grid's, unchanged --------------------------------------------------------------

    @property
    def run(self) -> Run:
        return self._grid.run

    def set_run(self, run: Run) -> None:
        self._grid.set_run(run)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Any:
        return self._grid.get_nodes()

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self._grid.create_message(*args, **kwargs)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)
