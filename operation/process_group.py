"""The processes of one SuperLink: known by the folder they were given, and ended with it.

Flower and Ray start daemons in sessions of their own, some of which outlive whoever started them.
All of them inherit `FLWR_HOME`, which here is a folder of its own for every simulation and every
study: that, and not a name, tells them from those of another, or of another user.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import signals

MARK = "FLWR_HOME"
VISIBLE = Path("/proc/self/environ").exists()  # Linux; elsewhere Flower and Ray end their own

_PROC = Path("/proc")
# Ray puts sockets at <folder>/ray/session_<time>_<process>/sockets/plasma_store, 68 bytes below
# the folder, and the kernel takes 107 in all.
_LONGEST_FOLDER = 39
_END_SECONDS = 10.0


@contextmanager
def new_home() -> Iterator[Path]:
    """Give a simulation a folder; at the end, stop every process that has it and remove it."""
    home = Path(tempfile.mkdtemp(prefix="feddc-", dir=_short_enough())).resolve()
    try:
        yield home
    finally:
        with signals.ignored():  # of a second Ctrl-C
            clear(home)


def clear(home: Path) -> None:
    """Stop every other process of a simulation and remove its folder."""
    end_all(home)
    shutil.rmtree(home, ignore_errors=True)


def command_lines(home: Path) -> list[str]:
    """Return what the living processes of a simulation were started as."""
    return [
        _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in _of(home)
    ]


def running(home: Path, program: str) -> list[int]:
    """Return the living processes of a folder that were started as `program`."""
    return [pid for pid in _of(home) if program.encode() in _read(pid, "cmdline")]


def end_all(home: Path) -> None:
    """Kill a simulation's other processes, and what they start meanwhile, until none is left.

    They are not asked first: results are in the run folder by then, nothing they hold is kept.
    """
    deadline = time.monotonic() + _END_SECONDS
    killed: set[int] = set()
    while ((found := _of(home)) or any(map(_is_dying, killed))) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        time.sleep(0.02)


def _of(home: Path) -> list[int]:
    if not VISIBLE:
        return []
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if pid != os.getpid() and _belongs(pid, home)]


def _belongs(pid: int, home: Path) -> bool:
    return f"{MARK}={home}".encode() in _read(pid, "environ").split(b"\0")


def _is_dying(pid: int) -> bool:
    # A killed process loses its environment at once, and its memory and files a while later.
    state = _read(pid, "stat").rpartition(b")")[2].split()[:1]
    return state not in ([], [b"Z"], [b"X"])


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:  # gone meanwhile, or another user's
        return b""


def _short_enough() -> str | None:
    usual = Path(tempfile.gettempdir()).resolve() / "feddc-12345678"
    return None if len(os.fsencode(usual)) <= _LONGEST_FOLDER else "/tmp"  # noqa: S108 (mkdtemp)
