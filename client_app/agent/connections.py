"""Limits on the connections to the agent's socket: how many, and how long each may keep it waiting.

A connection that sends its headers slowly, or does not read its reply, costs nobody else anything:
it is dropped after a while, and at once when there are too many.
"""

import asyncio
from enum import IntEnum

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256
BACKLOG = 128  # connections the kernel holds; below the limit, so that none is dropped unread
_LOOK_SECONDS = 2.0


class _Phase(IntEnum):
    """What a connection waits for, in the order in which connections are given up."""

    HEADERS = 0
    SENDING = 1  # for the caller to read the reply
    BODY = 2
    ANSWER = 3  # for the hospital: never given up


# The API limits the time for a body itself, by its length.
_LIMIT_SECONDS = {_Phase.HEADERS: 10.0, _Phase.SENDING: 60.0}


class LimitedConnection(H11Protocol):
    """Uvicorn's connection, dropped when it is idle for too long or when there are too many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._began = self._since = self.loop.time()
        self._last = self._phase
        self._timer = self.loop.call_later(_LOOK_SECONDS, self._look)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    @property
    def _phase(self) -> _Phase:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return _Phase.HEADERS
        if cycle.response_started:
            return _Phase.SENDING
        return _Phase.BODY if cycle.more_body else _Phase.ANSWER

    def _look(self) -> None:
        now = self.loop.time()
        if self._phase is not self._last:
            self._last, self._since = self._phase, now
        if now - self._since > _LIMIT_SECONDS.get(self._last, float("inf")):
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(_LOOK_SECONDS, self._look)

    def _make_room(self) -> None:
        """Drop the connection that has kept the agent waiting longest, or else this one."""
        others = [
            other
            for other in self.connections
            if isinstance(other, LimitedConnection)
            and other._phase is not _Phase.ANSWER
            and not other.transport.is_closing()
        ]
        min(others, key=lambda other: (other._phase, other._began)).transport.abort()
