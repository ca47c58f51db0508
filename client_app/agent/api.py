"""The agent's HTTP API on its socket: requests, one at a time and within limits, and its health.

The sender is code that the coordinator shipped. Requests that are too long, too slow or too many
are rejected here; the hospital checks what is in them.
"""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from fastapi import FastAPI, HTTPException, Request, Response
from starlette.background import BackgroundTask

from .bodies import TOO_LONG, BodyReader, rejection
from .work_queue import RequestHandler, WorkQueue

_BYTES = "application/octet-stream"
_SUMMARY_SECONDS = 60.0


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
        self._bodies = BodyReader(maximum_bytes)
        self._queue = WorkQueue(hospital)
        self._oversized = 0
        self._summary: asyncio.TimerHandle | None = None
        self._last_summary = -math.inf
        self.app = FastAPI(
            docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, debug=False
        )
        self.app.post("/v1/request")(self.request)
        self.app.get("/v1/health")(self.health)

    @property
    def busy(self) -> bool:
        """Whether the hospital is working on a request."""
        return self._queue.busy

    async def request(self, request: Request) -> Response:
        try:
            _check_headers(request, self._maximum)
            answer, read = self._queue.add(await self._bodies.read(request))
        except HTTPException as error:
            self._oversized += error.status_code == TOO_LONG
            raise
        finally:
            self._plan_summary()
        try:
            return Response(await answer, media_type=_BYTES, background=BackgroundTask(read))
        except asyncio.CancelledError:  # the agent is stopping
            raise rejection(503, "stopping; retry later") from None
        except BaseException:
            read()
            raise

    def between_requests(self, work: Callable[[], None]) -> "Future[None]":
        """Let the worker do something else when it is not working on a request."""
        return self._queue.submit(work)

    async def health(self) -> Health:
        return self._health

    def finish(self) -> None:
        """Record what was only counted so far, and wait for it."""
        self._record_counted(everything=True)
        self._queue.close()

    def _plan_summary(self) -> None:
        """Have rejected requests recorded once a minute, however many there are."""
        if self._summary is None:
            loop = asyncio.get_running_loop()
            due = self._last_summary + _SUMMARY_SECONDS
            self._summary = loop.call_at(max(due, loop.time()), self._summarise)

    def _summarise(self) -> None:
        self._summary, self._last_summary = None, asyncio.get_running_loop().time()
        self._record_counted()

    def _record_counted(self, *, everything: bool = False) -> None:
        count, self._oversized = self._oversized, 0
        if count:
            self._queue.submit(lambda: self._hospital.record_oversized(count))
        self._queue.submit(lambda: self._hospital.write_summaries(everything=everything))


def _check_headers(request: Request, maximum: int) -> None:
    """Reject a request by its headers, before the body is read."""
    length = request.headers.get("content-length")
    if request.headers.get("content-type") != _BYTES:
        raise rejection(415, f"content-type must be {_BYTES}")
    if length is not None and "transfer-encoding" in request.headers:
        raise rejection(400, "content-length and transfer-encoding contradict each other")
    if length is not None and int(length) > maximum:
        raise rejection(TOO_LONG, "request too long")
