"""Real processes in tests: free ports, waiting for an event, and which processes live."""

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.processes import free_port as free_port  # for the tests


def wait_until(is_so: Callable[[], bool], seconds: float = 180) -> None:
    """Wait for an event; the limit is only for what never happens, on however busy a machine."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that live; none if it has ended."""
    try:
        lines = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
        return [int(number) for line in lines for number in line.read_text().split()]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for after its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
