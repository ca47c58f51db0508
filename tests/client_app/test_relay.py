"""The relay between two connections, in a loop whose clock the tests move."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from client_app.connect.relay import Stream, relay

IDLE = 900.0


class MovedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be moved."""

    moved = 0.0

    def time(self) -> float:
        return super().time() + self.moved


class Connection:
    """A relayed connection: the caller's end, the coordinator's end, and the relay's task."""

    def __init__(self, caller: Stream, coordinator: Stream, task: "asyncio.Task[None]") -> None:
        self.caller, self.coordinator, self.task = caller, coordinator, task

    async def exchange(self, data: bytes) -> None:
        """Send bytes each way and wait until they have arrived."""
        for (_, writer), (reader, _) in (
            (self.caller, self.coordinator),
            (self.coordinator, self.caller),
        ):
            writer.write(data)
            assert await reader.readexactly(len(data)) == data


def relayed(test: Callable[[MovedLoop, Connection], Awaitable[None]]) -> None:
    """Run a test with a relay that has passed on a greeting."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MovedLoop)
        pairs = [socket.socketpair(), socket.socketpair()]
        streams = [await asyncio.open_unix_connection(sock=end) for pair in pairs for end in pair]
        caller, near, far, coordinator = streams
        task = asyncio.create_task(relay(1, b"hello", near, far, IDLE))
        assert await coordinator[0].readexactly(5) == b"hello"
        try:
            await test(loop, Connection(caller, coordinator, task))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for _, writer in streams:
                writer.close()

    with asyncio.Runner(loop_factory=MovedLoop) as runner:
        runner.run(run())


def test_a_connection_on_which_nothing_passes_is_ended() -> None:
    async def idle(loop: MovedLoop, connection: Connection) -> None:
        loop.moved += IDLE + 1
        await connection.task

    relayed(idle)


def test_a_slow_connection_is_not_ended() -> None:
    async def slow(loop: MovedLoop, connection: Connection) -> None:
        for _ in range(4):
            loop.moved += IDLE - 100
            await connection.exchange(b"still there")
        assert not connection.task.done()
        loop.moved += IDLE + 1
        await connection.task

    relayed(slow)


def test_the_end_of_one_direction_leaves_the_other_open() -> None:
    async def half_closed(loop: MovedLoop, connection: Connection) -> None:
        connection.caller[1].write_eof()
        assert await connection.coordinator[0].read() == b""
        connection.coordinator[1].write(b"late answer")
        connection.coordinator[1].write_eof()
        assert await connection.caller[0].read() == b"late answer"
        await connection.task

    relayed(half_closed)
