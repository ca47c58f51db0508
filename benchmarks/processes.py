"""Processes that a benchmark starts, each in a group of its own, and ends with itself."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from operation.flower.environment import flower_environment

FEDDC = [sys.executable, "-c", "from operation.cli import main; main()"]
_END_SECONDS = 15.0


class Processes:
    """Started by name, with a log each in one folder; all of them end with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, command: Sequence[object], environment: dict[str, str] | None = None
    ) -> int:
        """Start a program; return its process number."""
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 (our own commands)
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=base_environment() | (environment or {}),
            )
        self._started.append(process)
        return process.pid

    def logs(self) -> str:
        """Return the end of every log, for when something went wrong."""
        files = sorted(self._folder.rglob("*.log")) + sorted(self._folder.rglob("*.jsonl"))
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTERM, _end)  # told to end, it ends what it has started too
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            sys.stderr.write(self.logs())
        for process in self._started:
            with suppress(ProcessLookupError):
                process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        for process in self._started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def base_environment() -> dict[str, str]:
    """Return this environment with the checkout's packages, and without Flower's side shows."""
    return flower_environment() | {"OMP_NUM_THREADS": "1"}


def wait_for(is_so: Callable[[], bool], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {seconds:g} s")
        time.sleep(0.2)


def free_port() -> int:
    """Return a port that is free, and the next one too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
