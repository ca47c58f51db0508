"""The agent's HTTP API on its socket: requests, one at a time and within limits, and its health.

The sender is code that the coordinator shipped. Requests that are too long, too slow or too many
are rejected here; the hospital checks what is in them.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from fastapi import FastAPI, HTTPException, Request, Response
from starlette.requests import ClientDisconnect

_BYTES = "application/octet-stream"
# Each waits in memory. A courier carries one request at a time; others are retries.
_MOST_WAITING = 4
_READING_SECONDS = 120.0
_TOO_LONG = 413


class RequestHandler(Protocol):
    """What the API needs of a hospital."""

    def answer(self, data: bytes) -> bytes: ...

    def record_oversized(self) -> None:
        """Record that a request was too long to be read."""


@dataclass(frozen=True)
class Health:
    """The public facts about an agent: everybody who can use the socket may read them."""

    name: str
    roster: str
    version: str


class AgentApi:
    """The two routes: POST /v1/request and GET /v1/health."""

    def __init__(self, hospital: RequestHandler, health: Health, *, maximum_bytes: int) -> None:
        self._hospital = hospital
        self._health = health
        self._maximum = maximum_bytes
        self._reading = asyncio.Lock()
        # One thread: the hospital never works on two requests at once.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hospital")
        self._at_work: dict[bytes, asyncio.Future[bytes]] = {}
        self.app = FastAPI(
            docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, debug=False
        )
        self.app.post("/v1/request")(self.request)
        self.app.get("/v1/health")(self.health)

    @property
    def busy(self) -> bool:
        """Whether the hospital is working on a request."""
        return bool(self._at_work)

    async def request(self, request: Request) -> Response:
        try:
            _check_headers(request, self._maximum)
            async with self._reading:
                if len(self._at_work) >= _MOST_WAITING:
                    raise _rejection(503, "busy; retry later")
                # The body is not kept here: a hundred copies of a request share one.
                answer = self._answer(await _read(request, self._maximum))
        except HTTPException as error:
            if error.status_code == _TOO_LONG:
                self._worker.submit(self._hospital.record_oversized)
            raise
        try:
            return Response(await answer, media_type=_BYTES)
        except asyncio.CancelledError:  # the agent is stopping
            raise _rejection(503, "stopping; retry later") from None

    async def health(self) -> Health:
        return self._health

    def _answer(self, data: bytes) -> asyncio.Future[bytes]:
        """Let the hospital answer; the same bytes again share the work in progress."""
        work = self._at_work.get(data)
        if work is None:
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._worker, self._hospital.answer, data)
            self._at_work[data] = work
            work.add_done_callback(lambda _: self._at_work.pop(data))
        # The caller may hang up: the work goes on, for its copies and for a retry.
        return asyncio.shield(work)


def _check_headers(request: Request, maximum: int) -> None:
    """Reject a request by its headers, before the body is read."""
    length = request.headers.get("content-length")
    if request.headers.get("content-type") != _BYTES:
        raise _rejection(415, f"content-type must be {_BYTES}")
    if length is not None and "transfer-encoding" in request.headers:
        raise _rejection(400, "content-length and transfer-encoding contradict each other")
    if length is not None and int(length) > maximum:
        raise _rejection(_TOO_LONG, "request too long")


async def _read(request: Request, maximum: int) -> bytes:
    """Read the body, up to `maximum` bytes, whatever its header says."""
    parts, length = [], 0
    try:
        async with asyncio.timeout(_READING_SECONDS):
            async for part in request.stream():
                length += len(part)
                if length > maximum:
                    raise _rejection(_TOO_LONG, "request too long")
                parts.append(part)
    except TimeoutError:
        raise _rejection(408, "the request did not arrive in time") from None
    except ClientDisconnect:
        raise _rejection(400, "the request ended early") from None
    return b"".join(parts)


def _rejection(status: int, detail: str) -> HTTPException:
    # Close the connection: otherwise the server would read the rest of the body.
    return HTTPException(status, detail, headers={"connection": "close"})
