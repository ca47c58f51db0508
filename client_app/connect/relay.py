"""Copy bytes both ways between two connections, until both are closed or nothing passes."""

import asyncio
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable

from .upstream import BUFFER_BYTES

Stream = tuple[StreamReader, StreamWriter]

logger = logging.getLogger("feddc.forwarder")


async def relay(
    number: int, greeting: bytes, near: Stream, far: Stream, idle_seconds: float
) -> None:
    """Pass `greeting` on to `far`, then copy both ways; log how connection `number` ended.

    A connection on which nothing has passed for `idle_seconds` is closed.
    """
    now = asyncio.get_running_loop().time
    start = last = now()
    passed = [len(greeting), 0]

    def count(direction: int, length: int) -> None:
        nonlocal last
        last = now()
        passed[direction] += length

    far[1].write(greeting)
    pumps = [
        asyncio.create_task(_pump(near[0], far[1], lambda length: count(0, length))),
        asyncio.create_task(_pump(far[0], near[1], lambda length: count(1, length))),
    ]
    ended = "closed"
    try:
        while True:
            left = last + idle_seconds - now()
            if left <= 0:
                ended = f"idle for {idle_seconds:.0f} s, closed"
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


async def _pump(reader: StreamReader, writer: StreamWriter, count: Callable[[int], None]) -> None:
    """Copy one direction; at its end, close that direction only."""
    while data := await reader.read(BUFFER_BYTES):
        writer.write(data)
        count(len(data))
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
