"""Reading of request bodies: several at once, none of which can hold up another.

Together they take a bounded amount of memory. Who is slower than a local socket has reason to be,
or has been reading longest when there are too many, is rejected.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

TOO_LONG = 413
_MOST_READING = 32
_GRACE_SECONDS, _BYTES_PER_SECOND = 10.0, 1_000_000.0


@dataclass(eq=False)
class _Reading:
    """A body on its way in."""

    limit: asyncio.Timeout
    began: float
    received: int = 0
    is_dropped: bool = False
    parts: list[bytes] = field(default_factory=list)


class BodyReader:
    """Reads bodies of at most `maximum` bytes, twice as many bytes in all."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._readings: dict[_Reading, None] = {}  # oldest first
        self._received = 0

    async def read(self, request: Request) -> bytes:
        """Read a body, whatever its headers say about its length."""
        now = asyncio.get_running_loop().time()
        reading = _Reading(asyncio.timeout(_GRACE_SECONDS), now)
        self._readings[reading] = None
        if len(self._readings) > _MOST_READING:
            self._drop_oldest()
        try:
            async with reading.limit:
                async for part in request.stream():
                    self._add(reading, part)
            return b"".join(reading.parts)
        except TimeoutError:
            raise rejection(408, "the request did not arrive in time") from None
        except ClientDisconnect:
            raise rejection(400, "the request ended early") from None
        finally:
            self._forget(reading)

    def _add(self, reading: _Reading, part: bytes) -> None:
        if reading.is_dropped:
            raise rejection(408, "the request did not arrive in time")
        if reading.received + len(part) > self._maximum:
            raise rejection(TOO_LONG, "request too long")
        while self._received + len(part) > 2 * self._maximum:
            self._drop_oldest()
            if reading.is_dropped:
                raise rejection(503, "busy; retry later")
        reading.parts.append(part)
        reading.received += len(part)
        self._received += len(part)
        deadline = reading.began + _GRACE_SECONDS + reading.received / _BYTES_PER_SECOND
        reading.limit.reschedule(deadline)

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._readings))
        self._forget(oldest)
        oldest.is_dropped = True
        with suppress(RuntimeError):  # its time is up anyway
            oldest.limit.reschedule(asyncio.get_running_loop().time())

    def _forget(self, reading: _Reading) -> None:
        if self._readings.pop(reading, reading) is None:
            self._received -= reading.received
            reading.parts = []


def rejection(status: int, detail: str) -> HTTPException:
    """Return an error that closes the connection: else the server would read the rest."""
    return HTTPException(status, detail, headers={"connection": "close"})
