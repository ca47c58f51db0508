"""The processes of one SuperLink, found by the folder that they share, and killed together.

Flower and Ray start daemons in sessions of their own, some of which outlive their parents. All of
them inherit `FLWR_HOME`, which every simulation and every study sets to a folder of its own: that
identifies their processes among those of other runs and other users.
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
    """Make a folder for a simulation; at the end, kill its processes and remove the folder."""
    home = Path(tempfile.mkdtemp(prefix="feddc-", dir=_short_enough())).resolve()
    try:
        yield home
    finally:
        with signals.ignored():  # of a second Ctrl-C
            clear(home)


def clear(home: Path) -> None:
    """Kill every other process of a simulation and remove its folder."""
    end_all(home)
    shutil.rmtree(home, ignore_errors=True)


def command_lines(home: Path) -> list[str]:
    """Return the command lines of a simulation's running processes."""
    return [
        _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in _of(home)
    ]


def running(home: Path, program: str) -> list[int]:
    """Return the ids of a folder's running processes that were started as `program`."""
    return [pid for pid in _of(home) if program.encode() in _read(pid, "cmdline")]


def end_all(home: Path) -> None:
    """Kill a simulation's other processes, and those that they start meanwhile, until none is left.

    SIGKILL at once: results are in the run folder by then, and the processes keep nothing else.
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
