"""How long the forwarder waits for a byte, in virtual time and over Unix sockets of one loop."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from client_app.connect.forwarder import Forwarder
from client_app.connect.upstream import Place, Upstream
from tests import virtual_time

pytestmark = pytest.mark.timing

Call = Callable[[StreamReader, StreamWriter], Awaitable[None]]


def called(folder: Path, call: Call) -> None:
    """Run a forwarder to an echo, with a caller at its socket."""

    async def echo(reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async def test() -> None:
        far, near = folder / "far.sock", folder / "near.sock"
        forwarder = Forwarder(Upstream(Place.parse(f"unix:{far}")))
        async with (
            await asyncio.start_unix_server(echo, str(far)),
            forwarder.open(Place.parse(f"unix:{near}")),
        ):
            reader, writer = await asyncio.open_unix_connection(str(near))
            await call(reader, writer)
            writer.close()

    virtual_time.run(test())


def now() -> float:
    return asyncio.get_running_loop().time()


def test_an_idle_connection_is_closed_and_a_slow_one_is_not(tmp_path: Path) -> None:
    async def call(reader: StreamReader, writer: StreamWriter) -> None:
        for _ in range(4):  # an hour in all
            writer.write(b"there?")
            assert await reader.read(100) == b"there?"
            await asyncio.sleep(890)
        writer.write(b"last")
        assert await reader.read(100) == b"last"
        last = now()
        assert await reader.read(100) == b""
        assert now() - last == pytest.approx(900)

    called(tmp_path, call)


def test_a_caller_that_sends_nothing_is_closed_after_a_minute(tmp_path: Path) -> None:
    async def call(reader: StreamReader, writer: StreamWriter) -> None:
        assert await reader.read(100) == b""
        assert now() == pytest.approx(60)

    called(tmp_path, call)
