"""Processes of a benchmark: each in its own process group, all ended with the benchmark."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Self

from operation.flower.environment import flower_environment

FEDDC = [sys.executable, "-c", "from operation.cli import main; main()"]
_END_SECONDS = 15.0


class Processes:
    """Starts processes, each with a log in one folder; all of them end with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, command: Sequence[object], environment: dict[str, str] | None = None
    ) -> int:
        """Start a program and return its process id."""
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
        """Return the end of every log, for error messages."""
        files = sorted(self._folder.rglob("*.log")) + sorted(self._folder.rglob("*.jsonl"))
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTERM, _end)  # exit normally, so that __exit__ ends the processes
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
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
    """Return the environment of Flower's processes, with one thread for each trainer."""
    return flower_environment() | {"OMP_NUM_THREADS": "1"}


def wait_for(is_so: Callable[[], bool], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {seconds:g} s")
        time.sleep(0.2)


def free_port(in_a_row: int = 1) -> int:
    """Return the first of several consecutive free ports, below those of outgoing connections."""
    while True:
        first = random.randint(20_000, 32_000)  # noqa: S311 (not a secret)
        try:
            for port in range(first, first + in_a_row):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
