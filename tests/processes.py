"""Real processes in tests: free ports, waiting for an event, and which processes live."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.support.processes import free_port as free_port  # for the tests


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


def descendants(pid: int) -> list[int]:
    """Return the processes that a process and its children have started and that live."""
    found = children(pid)
    return found + [pid for child in found for pid in descendants(child)]


def listening_addresses(pids: list[int]) -> dict[str, set[str]]:
    """Return the addresses, HOST:PORT, at which these processes listen, with their names."""
    programs: dict[str, set[str]] = {}  # by the number of a socket
    for pid in pids:
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                programs.setdefault(str(entry.readlink()), set()).add(name)
    found: dict[str, set[str]] = {}
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            names = programs.get(f"socket:[{fields[9]}]")
            if fields[3] == "0A" and names:  # LISTEN
                host, port = fields[1].split(":")
                words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
                address = f"{socket.inet_ntop(family, b''.join(words))}:{int(port, 16)}"
                found.setdefault(address, set()).update(names)
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for after its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
