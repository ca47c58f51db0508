"""An agent with a stub for a hospital: SOCKET, MAXIMUM-BYTES and a LOG file are its arguments."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from client_app.agent.api import AgentApi, Health
from client_app.agent.process import run
from client_app.agent.work_queue import WorkQueue
from operation.unix_socket import listening


class StubHospital:
    """Answers everything; what begins with `wait` takes until the file it names is there."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def answer(self, data: bytes) -> bytes:
        self._write(b"begins " + data[:100])
        if data == b"raise":
            raise RuntimeError("/private/path of PATIENT-4711")
        if data.startswith(b"wait "):
            awaited, deadline = Path(data.decode()[5:].strip()), time.monotonic() + 300
            while not awaited.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        self._write(b"ends " + data[:100])
        return b"answer to " + data

    def is_signed(self, data: bytes) -> bool:
        return not data.startswith(b"junk")

    def record_oversized(self, count: int) -> None:
        self._write(b"turned away %d" % count)

    def write_summaries(self, *, everything: bool = False) -> None:
        pass

    def _write(self, line: bytes) -> None:
        with self._log.open("ab") as file:
            file.write(line + b"\n")


class WatchedQueue(WorkQueue):
    """Notes the requests that have been read, whether or not the hospital works on them yet."""

    arrivals: Path

    def add(self, data: bytes) -> tuple["asyncio.Future[bytes]", Callable[[], None]]:
        answer = super().add(data)
        with self.arrivals.open("ab") as file:
            file.write(data[:100] + b"\n")
        return answer


if __name__ == "__main__":
    # Started in the background of a script, a process ignores SIGINT; the tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    socket, maximum, log = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    hospital = StubHospital(log)
    api = AgentApi(hospital, Health("stub", "AAAA BBBB", "1.0"), maximum_bytes=maximum)
    api._queue = WatchedQueue(hospital)
    WatchedQueue.arrivals = log.with_name("arrivals")
    with listening(socket, os.getegid()) as listener:
        run(api, listener)
    if api.busy:
        os._exit(0)
    api.finish()
