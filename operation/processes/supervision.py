"""Long-running programs: restarted when they end, and stopped with their supervisor.

Both sides run a program of Flower's for months. Whatever it prints goes to the log.
"""

import logging
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from operation.clock import Clock
from operation.log_lines import read_line

from . import signals

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_STABLE_SECONDS = 60.0  # having run that long, a program that ends is started again at once
_END_SECONDS = 15.0
_LOOK_SECONDS = 0.1
_TIE_TO_PARENT = 1  # Linux's PR_SET_PDEATHSIG


@dataclass
class Program:
    """A program to keep running, in a process group of its own."""

    name: str
    command: Callable[[], Sequence[str]]
    environment: Mapping[str, str]
    logger: logging.Logger
    before_start: Callable[[], None] = lambda: None
    after_start: Callable[[int], None] = lambda pid: None
    on_line: Callable[[str], None] = lambda text: None
    explain: Callable[[int, str], str] = lambda code, last: ""
    clock: Clock = field(default_factory=Clock)
    process: subprocess.Popen[bytes] | None = None
    _reader: threading.Thread | None = None
    _started: float = 0.0
    _due: float = -math.inf
    _pause: float = _FIRST_PAUSE
    _last: list[str] = field(default_factory=list)

    def look_after(self) -> None:
        """Start the program if it is not running and its time has come."""
        now = self.clock.now()
        if self.process is None:
            if now >= self._due:
                self._start()
            return
        code = self.process.poll()
        if code is None:
            return
        self._clear_up()
        if now - self._started > _STABLE_SECONDS:
            self._pause = _FIRST_PAUSE
        reason = self.explain(code, "\n".join(self._last)) or f"ended with {_said(code)}"
        self.logger.error(f"{self.name} {reason}; starting it again in {self._pause:.0f} s")
        self._due = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def stop(self) -> None:
        """Ask the program to end, and make it; nothing of its group is left."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_SECONDS)
        self._clear_up()

    def _start(self) -> None:
        self.before_start()
        self._last.clear()
        self._started = self.clock.now()
        self.process = subprocess.Popen(  # noqa: S603 (our caller's command)
            [
                sys.executable,
                "-P",
                "-m",
                "operation.processes.supervision",
                str(os.getpid()),
                *self.command(),
            ],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.after_start(self.process.pid)
        self._reader = threading.Thread(target=self._copy, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _copy(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                level, text = read_line(line.decode(errors="replace"))
                if text:
                    self._last = [*self._last[-19:], text]
                    self.logger.log(level, text)
                    self.on_line(text)

    def _clear_up(self) -> None:
        process = self.process
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):  # what it started, and itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if self._reader is not None:
            self._reader.join(timeout=1.0)
        self.process = None


def keep_running(programs: Sequence[Program], clock: Clock | None = None) -> int:
    """Keep all programs running until a signal asks to end; return the signal's number."""
    clock = clock or Clock()
    with signals.collected() as asked:
        try:
            while not asked:
                for program in programs:
                    program.look_after()
                clock.sleep(_LOOK_SECONDS)
        finally:
            for program in reversed(programs):
                program.stop()
    return asked[0]


def _said(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def end_with_parent(parent: int, number: signal.Signals) -> bool:
    """Have the kernel send this process a signal when its parent ends; False if it has ended.

    Linux only, and for the thread that started this process: elsewhere nothing is promised.
    """
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_TIE_TO_PARENT, number)
    return os.getppid() == parent


def _become(parent: int, command: list[str]) -> None:
    """Turn this process into the program, which gets SIGTERM when its parent is gone."""
    parent_lives = end_with_parent(parent, signal.SIGTERM)
    signals.restore_defaults()  # ignored ones would stay so
    if parent_lives:
        os.execvp(command[0], command)  # noqa: S606 (our caller's command)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
