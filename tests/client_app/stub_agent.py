"""An agent with a stub for a hospital: SOCKET, MAXIMUM-BYTES and a LOG file are its arguments."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from client_app.agent.api import AgentApi, Health
from client_app.agent.process import run
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

    def record_oversized(self) -> None:
        self._write(b"turned away")

    def _write(self, line: bytes) -> None:
        with self._log.open("ab") as file:
            file.write(line + b"\n")


class WatchedApi(AgentApi):
    """Notes the requests that have been read, whether or not the hospital works on them yet."""

    arrivals: Path

    def _answer(self, data: bytes) -> "asyncio.Future[bytes]":
        answer = super()._answer(data)
        with self.arrivals.open("ab") as file:
            file.write(data[:100] + b"\n")
        return answer


if __name__ == "__main__":
    # Started in the background of a script, a process ignores SIGINT; the tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    socket, maximum, log = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    api = WatchedApi(StubHospital(log), Health("stub", "AAAA BBBB", "1.0"), maximum_bytes=maximum)
    api.arrivals = log.with_name("arrivals")
    with listening(socket, os.getegid()) as listener:
        run(api, listener)
    if api.busy:
        os._exit(0)
