"""What the agent answers on its socket: requests, one at a time and within limits, and its health.

Whoever sends is code that the coordinator shipped. A request that is too long, too slow or one too
many is turned away here; what is in it is the hospital's to judge.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from fastapi import FastAPI, HTTPException, Request, Response
from starlette.requests import ClientDisconnect

_BYTES = "application/octet-stream"
# Each waits in memory. A courier carries one at a time; a few more are re-sent ones.
_MOST_WAITING = 4
_READING_SECONDS = 120.0
_TOO_LONG = 413


class Answering(Protocol):
    """The hospital, as far as the socket is concerned."""

    def answer(self, data: bytes) -> bytes: ...

    def turned_away(self, detail: str) -> None:
        """Take note of a request that was too long to be read."""


@dataclass(frozen=True)
class Health:
    """All that is told to whoever asks."""

    name: str
    roster: str
    version: str


class AgentApi:
    """The two routes. `busy` says whether the hospital is at work."""

    def __init__(self, hospital: Answering, health: Health, *, maximum_bytes: int) -> None:
        self._hospital = hospital
        self._health = health
        self._maximum = maximum_bytes
        self._reading = asyncio.Lock()
        # One thread is one lock: the hospital never works on two requests at once.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hospital")
        self._at_work: dict[bytes, asyncio.Future[bytes]] = {}
        self.app = FastAPI(
            docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, debug=False
        )
        self.app.post("/v1/request")(self.request)
        self.app.get("/v1/health")(self.health)

    @property
    def busy(self) -> bool:
        return bool(self._at_work)

    async def request(self, request: Request) -> Response:
        try:
            _check_headers(request, self._maximum)
            async with self._reading:
                if len(self._at_work) >= _MOST_WAITING:
                    raise _turned_away(503, "busy; ask again")
                # Not kept here: a hundred twins must not take a hundred times the memory.
                answer = self._answer(await _read(request, self._maximum))
        except HTTPException as error:
            if error.status_code == _TOO_LONG:
                self._worker.submit(self._hospital.turned_away, "a request too long to be read")
            raise
        try:
            return Response(await answer, media_type=_BYTES)
        except asyncio.CancelledError:  # the agent is stopping
            raise _turned_away(503, "stopping; ask again") from None

    async def health(self) -> Health:
        return self._health

    def _answer(self, data: bytes) -> asyncio.Future[bytes]:
        """Have the hospital answer; the same bytes again join those it is working on."""
        work = self._at_work.get(data)
        if work is None:
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._worker, self._hospital.answer, data)
            self._at_work[data] = work
            work.add_done_callback(lambda _: self._at_work.pop(data))
        # Whoever asked may hang up: the work goes on, for its twin and for the next to ask.
        return asyncio.shield(work)


def _check_headers(request: Request, maximum: int) -> None:
    """Turn away what need not be read."""
    length = request.headers.get("content-length")
    if request.headers.get("content-type") != _BYTES:
        raise _turned_away(415, f"content-type must be {_BYTES}")
    if length is not None and "transfer-encoding" in request.headers:
        raise _turned_away(400, "content-length and transfer-encoding contradict each other")
    if length is not None and int(length) > maximum:
        raise _turned_away(_TOO_LONG, "request too long")


async def _read(request: Request, maximum: int) -> bytes:
    """Read the body, and not a byte more than is allowed, whatever its header says."""
    parts, length = [], 0
    try:
        async with asyncio.timeout(_READING_SECONDS):
            async for part in request.stream():
                length += len(part)
                if length > maximum:
                    raise _turned_away(_TOO_LONG, "request too long")
                parts.append(part)
    except TimeoutError:
        raise _turned_away(408, "the request did not arrive in time") from None
    except ClientDisconnect:
        raise _turned_away(400, "the request ended early") from None
    return b"".join(parts)


def _turned_away(status: int, detail: str) -> HTTPException:
    # Without hanging up, the rest of the body would be read, if only to throw it away.
    return HTTPException(status, detail, headers={"connection": "close"})
