"""Who runs the coordinator's services: a lock that goes with its process, however that ends."""

import json
import os
from pathlib import Path

from operation import files
from operation.locks import LockHeld, ProcessLock, lock_holder


class AlreadyUp(Exception):
    """Another process holds the lock."""


class ServiceLock:
    """Held by the supervisor while it lives; the file has the numbers of its processes."""

    def __init__(self, path: Path) -> None:
        files.make_folder(path.parent)
        self._lock = ProcessLock(path)
        self._pids = {"supervisor": os.getpid()}

    def __enter__(self) -> "ServiceLock":
        try:
            self._lock.acquire(json.dumps(self._pids))
        except LockHeld as error:
            raise AlreadyUp("the coordinator is already up") from error
        return self

    def note(self, part: str, pid: int) -> None:
        self._pids[part] = pid
        self._lock.write_holder(json.dumps(self._pids))

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def holders(path: Path) -> dict[str, int]:
    """Return the numbers of the processes behind a lock; none if nobody holds it."""
    try:
        found: dict[str, int] = json.loads(lock_holder(path) or "{}")
    except ValueError:  # read while it is written
        return {}
    return found
