"""The way out of the courier's container: carries bytes to one address, and to no other.

That container has no network. This program runs twice: in the courier's container, where it listens
on loopback as if it were the coordinator and leads to a Unix socket, and in a container of its own,
where it listens on that socket and leads to the coordinator, through the hospital's proxy if there
is one. TLS runs from Flower to the coordinator: what passes here can neither be read nor changed.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from operation import log_lines
from operation.unix_socket import SocketTaken, listening

from .upstream import BUFFER_BYTES, NoWayOut, Place, WayOut

logger = logging.getLogger("feddc.forwarder")

# A SuperNode has a handful of connections; hostile code shall not have as many as it likes.
CONNECTIONS = 64
_IDLE_SECONDS = 900.0
_GREETING_SECONDS = 60.0
_BACKLOG = 16


def main() -> None:
    """Forward until SIGTERM or SIGINT."""
    options = _parser().parse_args()
    log_lines.configure(options.log, terminal=True)
    if options.quiet:
        logger.setLevel(logging.WARNING)
    forwarder = Forwarder(WayOut.find(options.to, os.environ))
    try:
        asyncio.run(_until_told_to_stop(forwarder, options.listen))
    except (SocketTaken, OSError) as error:
        sys.exit(f"forwarder: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m client_app.connect.forwarder", description=__doc__
    )
    parser.add_argument("--listen", required=True, type=_place, help="HOST:PORT or unix:PATH")
    parser.add_argument("--to", required=True, type=_place, help="HOST:PORT or unix:PATH")
    parser.add_argument("--log", type=Path, help="a file for JSON lines, besides the terminal")
    parser.add_argument("--quiet", action="store_true", help="say only what goes wrong")
    return parser


def _place(text: str) -> Place:
    try:
        return Place.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


async def _until_told_to_stop(forwarder: "Forwarder", place: Place) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    async with forwarder.open(place):
        logger.info("listening at %s, leading to %s", place, forwarder.way)
        await asked.wait()
    logger.info("stopped")


@dataclass
class Forwarder:
    """Carries each connection it accepts to the one address."""

    way: WayOut
    idle_seconds: float = _IDLE_SECONDS
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _count: int = 0
    _problem: str = ""

    @asynccontextmanager
    async def open(self, place: Place) -> AsyncIterator[asyncio.Server]:
        """Accept connections within the block; at its end all are closed."""
        if place.path is None:
            server = await asyncio.start_server(
                self._accept, place.host, place.port, limit=BUFFER_BYTES, backlog=_BACKLOG
            )
            async with server:
                yield server
                await self._close_all()
            return
        with listening(place.path, os.getegid()) as listener:
            listener.setblocking(False)
            async with await asyncio.start_unix_server(
                self._accept, sock=listener, limit=BUFFER_BYTES, backlog=_BACKLOG
            ) as server:
                yield server
                await self._close_all()

    async def _close_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._count += 1
        if len(self._tasks) >= CONNECTIONS:
            logger.warning("connection %d: one too many, turned away", self._count)
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(self._count, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, number: int, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry one connection, from its first byte to its end."""
        other: StreamWriter | None = None
        try:
            # TLS begins with the caller's bytes. Before these nobody is troubled: neither the
            # coordinator by a health check, nor the proxy.
            async with asyncio.timeout(_GREETING_SECONDS):
                greeting = await reader.read(BUFFER_BYTES)
            if not greeting:
                return
            back, other = await self.way.dial()
            self._reached()
            other.write(greeting)
            await self._carry(number, len(greeting), (reader, writer), (back, other))
        except NoWayOut as error:
            self._not_reached(str(error))
        except TimeoutError:
            logger.warning("connection %d: nothing came, closed", number)
        except OSError as error:
            logger.info("connection %d: broken off (%s)", number, error.strerror or error)
        finally:
            for end in (writer, other):
                if end is not None:
                    await _close(end)

    async def _carry(
        self,
        number: int,
        sent: int,
        near: tuple[StreamReader, StreamWriter],
        far: tuple[StreamReader, StreamWriter],
    ) -> None:
        """Carry both ways until both are done, or until nothing has passed for too long."""
        now = asyncio.get_running_loop().time
        start = last = now()
        passed = [sent, 0]

        def note(way: int, length: int) -> None:
            nonlocal last
            last = now()
            passed[way] += length

        pumps = [
            asyncio.create_task(_pump(near[0], far[1], lambda length: note(0, length))),
            asyncio.create_task(_pump(far[0], near[1], lambda length: note(1, length))),
        ]
        ended = "closed"
        try:
            while True:
                left = last + self.idle_seconds - now()
                if left <= 0:
                    ended = f"idle for {self.idle_seconds:.0f} s, closed"
                    return
                done, waiting = await asyncio.wait(
                    pumps, timeout=left, return_when=asyncio.FIRST_EXCEPTION
                )
                for pump in done:
                    pump.result()
                if not waiting:
                    return
        except OSError as error:
            ended = f"broken off ({error.strerror or error})"
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            logger.info(
                "connection %d: %s after %.1f s, %d bytes out, %d bytes in",
                number, ended, now() - start, *passed,
            )  # fmt: skip

    def _reached(self) -> None:
        if self._problem:
            logger.info("%s can be reached again", self.way.to)
        self._problem = ""

    def _not_reached(self, problem: str) -> None:
        # Flower tries again for ever: one line for each kind of trouble, not one for each try.
        if problem != self._problem:
            logger.error("%s can't be reached: %s", self.way, problem)
        self._problem = problem


async def _pump(reader: StreamReader, writer: StreamWriter, note: Callable[[int], None]) -> None:
    """Carry one way; its end is passed on, and the other way goes on."""
    while data := await reader.read(BUFFER_BYTES):
        writer.write(data)
        note(len(data))
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _close(writer: StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
    writer.transport.abort()


if __name__ == "__main__":
    main()
