"""A hostile courier at the agent's socket holds up nobody else, and fills neither memory nor disk.

Before, a connection that sent one byte of its body blocked all others for two minutes, and 20 s of
"too long" headers made an honest request wait for 173 s.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException

from client_app.agent import bodies
from client_app.agent.bodies import BodyReader
from client_app.agent.connections import MOST_CONNECTIONS
from client_app.connect.agent_client import ask, health
from tests.client_app.agent_socket import arrived, connected, http_head, talk, worked
from tests.client_app.conftest import Agent, Start, start_stub
from tests.processes import wait_until

pytestmark = pytest.mark.timing


@pytest.fixture
def flooded(start: Start, new_folder: Any) -> Iterator[Agent]:
    with start_stub(start, new_folder()) as agent:
        yield agent


def test_bodies_that_arrive_slowly_hold_up_nobody(stub: Agent) -> None:
    with ExitStack() as open_ones:
        for _ in range(40):  # more than are read at once
            connection = open_ones.enter_context(connected(stub))
            connection.sendall(http_head("Content-Length: 1000") + b"x")

        assert ask(str(stub.socket), b"honest") == b"answer to honest"


def test_more_connections_than_the_agent_has_room_for_hold_up_nobody(stub: Agent) -> None:
    with ExitStack() as open_ones:
        for beginning in (b"", b"POST /v1/request HTTP/1.1\r\nX: "):
            for _ in range(MOST_CONNECTIONS):
                connection = open_ones.enter_context(connected(stub))
                connection.sendall(beginning)

        assert ask(str(stub.socket), b"honest too") == b"answer to honest too"
        assert health(str(stub.socket))["name"] == "stub"


def test_the_connection_that_waits_longest_makes_room(flooded: Agent) -> None:
    with ExitStack() as open_ones:
        first = open_ones.enter_context(connected(flooded))
        for _ in range(MOST_CONNECTIONS):
            open_ones.enter_context(connected(flooded))
        health(str(flooded.socket))
        assert first.recv(1) == b""  # the agent has hung up
        assert flooded.process.poll() is None


def test_oversized_requests_are_counted_and_not_queued(flooded: Agent) -> None:
    for _ in range(200):
        assert talk(flooded, http_head(f"Content-Length: {2**60}")).startswith(b"HTTP/1.1 413 ")
    assert flooded.stop() == 0

    lines = [line for line in worked(flooded) if line.startswith("turned away")]
    assert len(lines) <= 3  # at once, when the agent ends, and a full minute on a busy machine
    assert sum(int(line.split()[-1]) for line in lines) == 200


def test_junk_waits_in_a_queue_of_its_own(flooded: Agent) -> None:
    """Unsigned and repeated requests take one place, which honest ones do not need."""
    go = flooded.socket.with_name("go")
    assert ask(str(flooded.socket), b"once") == b"answer to once"
    with ExitStack() as open_ones:
        at_work = _queue(open_ones, flooded, f"wait {go}".encode())
        junk = _queue(open_ones, flooded, b"junk one")
        for body in (b"junk two", b"once"):
            assert _send(open_ones, flooded, body).recv(12) == b"HTTP/1.1 503"
        honest = [_queue(open_ones, flooded, b"new %d" % number) for number in range(3)]
        go.touch()
        for connection in (at_work, junk, *honest):
            assert connection.recv(12) == b"HTTP/1.1 200"


def _send(open_ones: ExitStack, agent: Agent, body: bytes) -> socket.socket:
    connection = open_ones.enter_context(connected(agent))
    connection.sendall(http_head(f"Content-Length: {len(body)}") + body)
    return connection


def _queue(open_ones: ExitStack, agent: Agent, body: bytes) -> socket.socket:
    connection = _send(open_ones, agent, body)
    wait_until(lambda: arrived(agent, body) == 1)
    return connection


# --- reading bodies -------------------------------------------------------------------------------


def test_bodies_take_twice_the_longest_request_in_memory() -> None:
    async def read() -> None:
        reader = BodyReader(100)
        halves = [Body() for _ in range(5)]
        tasks = [asyncio.create_task(reader.read(half.request)) for half in halves]
        for half in halves:
            half.send(bytes(60))
            await asyncio.sleep(0)
            assert reader._received <= 200
        for half in halves:
            half.send(bytes(10), last=True)
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, bytes) for one in done] == [False, False, True, True, True]
        assert all(one.status_code == 408 for one in done if isinstance(one, HTTPException))
        assert reader._received == 0

    asyncio.run(read())


def test_the_longest_on_its_way_makes_room_for_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_MOST_READING", 2)

    async def read() -> None:
        reader = BodyReader(100)
        waiting = [Body() for _ in range(3)]
        tasks = [asyncio.create_task(reader.read(body.request)) for body in waiting]
        with pytest.raises(HTTPException) as rejected:
            await tasks[0]
        assert rejected.value.status_code == 408
        for body in waiting[1:]:
            body.send(b"x", last=True)
        assert await asyncio.gather(*tasks[1:]) == [b"x", b"x"]

    asyncio.run(read())


def test_a_body_slower_than_a_local_socket_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(bodies, "_BYTES_PER_SECOND", 1e9)

    async def read() -> None:
        body = Body()
        body.send(b"x")
        with pytest.raises(HTTPException) as rejected:
            await BodyReader(100).read(body.request)
        assert rejected.value.status_code == 408

    asyncio.run(read())


class Body:
    """A request whose body arrives when the test says so."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.request: Any = SimpleNamespace(stream=self._stream)

    def send(self, part: bytes, *, last: bool = False) -> None:
        self._parts.put_nowait(part)
        if last:
            self._parts.put_nowait(None)

    async def _stream(self) -> AsyncIterator[bytes]:
        while (part := await self._parts.get()) is not None:
            yield part
