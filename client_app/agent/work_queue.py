"""The queue of requests for the hospital: one at a time, bounded, and new ones before junk.

The hospital's signature check decides what is junk, but anybody at the socket can replay a signed
request. So only one request at a time that is unsigned or was answered before is in the queue.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from .bodies import rejection

# Each waits in memory. A courier carries one request at a time; others are retries.
_MOST_NEW, _MOST_OTHERS = 4, 1
_MOST_CALLERS = 4  # of one request: each may leave its copy of the answer unread
_MOST_REMEMBERED = 10_000


class RequestHandler(Protocol):
    """What the queue needs of a hospital."""

    def answer(self, data: bytes) -> bytes: ...

    def is_signed(self, data: bytes) -> bool:
        """Return whether the coordinator has signed a request."""

    def record_oversized(self, count: int) -> None:
        """Record that so many requests were too long to be read."""

    def write_summaries(self, *, everything: bool = False) -> None:
        """Record what was only counted in the minutes that have passed, or ever."""


@dataclass
class _Work:
    """A request that waits for the hospital or is being worked on."""

    is_new: bool
    answer: asyncio.Future[bytes]
    callers: int = 0


class WorkQueue:
    """Passes requests to the hospital; copies of a request share its work."""

    def __init__(self, hospital: RequestHandler) -> None:
        self._hospital = hospital
        # One thread: the hospital never works on two requests at once.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hospital")
        self._work: dict[bytes, _Work] = {}
        self._answered: dict[int, None] = {}  # hashes of signed requests, oldest first
        self._others_unread = 0

    @property
    def busy(self) -> bool:
        return bool(self._work)

    def add(self, data: bytes) -> tuple[asyncio.Future[bytes], Callable[[], None]]:
        """Queue a request; return its answer, and what to call when the caller has read it.

        The body is not kept by the caller: a hundred copies of a request share one.
        """
        work = self._work.get(data) or self._queued(data)
        if work.callers >= _MOST_CALLERS:
            raise rejection(503, "busy; retry later")
        work.callers += 1
        # The caller may hang up: the work goes on, for its copies and for a retry.
        return asyncio.shield(work.answer), self._when_read(work)

    def submit(self, job: Callable[[], None]) -> "Future[None]":
        """Have the hospital do something between two requests."""
        return self._worker.submit(job)

    def close(self) -> None:
        """Wait for what the hospital is doing."""
        self._worker.shutdown()

    def _queued(self, data: bytes) -> _Work:
        is_signed = self._hospital.is_signed(data)
        is_new = is_signed and hash(data) not in self._answered
        waiting = sum(work.is_new is is_new for work in self._work.values())
        if is_new and waiting >= _MOST_NEW:
            raise rejection(503, "busy; retry later")
        if not is_new and waiting + self._others_unread >= _MOST_OTHERS:
            raise rejection(503, "busy; retry later")
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(self._worker, self._hospital.answer, data)
        self._work[data] = work = _Work(is_new, answer)
        answer.add_done_callback(lambda _: self._finish(data, remember=is_signed))
        return work

    def _finish(self, data: bytes, *, remember: bool) -> None:
        work = self._work.pop(data)
        self._others_unread += 0 if work.is_new else work.callers
        if remember:
            self._answered[hash(data)] = None
            if len(self._answered) > _MOST_REMEMBERED:
                del self._answered[next(iter(self._answered))]

    def _when_read(self, work: _Work) -> Callable[[], None]:
        def read() -> None:
            if not work.answer.done():
                work.callers -= 1
            elif not work.is_new:
                self._others_unread -= 1

        return read
