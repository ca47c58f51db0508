"""Forward connections from the courier's container to one address, and to no other.

The courier's container has no network. This program runs twice. In the courier's container it
listens on loopback in place of the coordinator, and forwards to a Unix socket. In a container of
its own it listens on that socket, and forwards to the coordinator, through the hospital's proxy if
there is one. TLS ends at Flower and at the coordinator: nothing can be read or changed here.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from operation import log_lines
from operation.unix_socket import SocketTaken, listening

from .relay import relay
from .upstream import BUFFER_BYTES, Place, Unreachable, Upstream

logger = logging.getLogger("feddc.forwarder")

# A SuperNode has a handful of connections; hostile code must not open any number of them.
_MAXIMUM_CONNECTIONS = 64
_IDLE_SECONDS = 900.0
_GREETING_SECONDS = 60.0
_BACKLOG = 16


def main() -> None:
    """Forward until SIGTERM or SIGINT."""
    options = _parser().parse_args()
    log_lines.configure(options.log, terminal=True)
    if options.quiet:
        logger.setLevel(logging.WARNING)
    forwarder = Forwarder(Upstream.from_environment(options.to, os.environ))
    try:
        asyncio.run(_run_until_stopped(forwarder, options.listen))
    except (SocketTaken, OSError) as error:
        sys.exit(f"forwarder: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m client_app.connect.forwarder", description=__doc__
    )
    parser.add_argument("--listen", required=True, type=_place, help="HOST:PORT or unix:PATH")
    parser.add_argument("--to", required=True, type=_place, help="HOST:PORT or unix:PATH")
    parser.add_argument("--log", type=Path, help="log file in JSON lines, besides the terminal")
    parser.add_argument("--quiet", action="store_true", help="log warnings and errors only")
    return parser


def _place(text: str) -> Place:
    try:
        return Place.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


async def _run_until_stopped(forwarder: "Forwarder", place: Place) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with forwarder.open(place):
        logger.info("listening at %s, forwarding to %s", place, forwarder.upstream)
        await stopped.wait()
    logger.info("stopped")


@dataclass
class Forwarder:
    """Forwards each connection it accepts to the one address."""

    upstream: Upstream
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _count: int = 0
    _problem: str = ""

    @asynccontextmanager
    async def open(self, place: Place) -> AsyncIterator[asyncio.Server]:
        """Accept connections within the block, and close all of them at its end."""
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
        if len(self._tasks) >= _MAXIMUM_CONNECTIONS:
            logger.warning("connection %d: rejected, there are too many", self._count)
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(self._count, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, number: int, reader: StreamReader, writer: StreamWriter) -> None:
        """Forward one connection, from its first byte to its end."""
        other: StreamWriter | None = None
        try:
            # In TLS the caller speaks first. Until then nothing is connected: a health check
            # reaches neither the coordinator nor the proxy.
            async with asyncio.timeout(_GREETING_SECONDS):
                greeting = await reader.read(BUFFER_BYTES)
            if not greeting:
                return
            back, other = await self.upstream.dial()
            self._reached()
            await relay(number, greeting, (reader, writer), (back, other), _IDLE_SECONDS)
        except Unreachable as error:
            self._not_reached(str(error))
        except TimeoutError:
            logger.warning("connection %d: closed, nothing was sent", number)
        except OSError as error:
            logger.info("connection %d: broken off (%s)", number, error.strerror or error)
        finally:
            for end in (writer, other):
                if end is not None:
                    await _close(end)

    def _reached(self) -> None:
        if self._problem:
            logger.info("%s can be reached again", self.upstream.to)
        self._problem = ""

    def _not_reached(self, problem: str) -> None:
        # Flower retries forever: log each problem once, not once per attempt.
        if problem != self._problem:
            logger.error("%s can't be reached: %s", self.upstream, problem)
        self._problem = problem


async def _close(writer: StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
    writer.transport.abort()


if __name__ == "__main__":
    main()
