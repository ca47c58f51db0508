"""The lock of the coordinator's supervisor; it is released when its process ends."""

import json
import os
from pathlib import Path

from operation import files
from operation.locks import LockHeld, ProcessLock, lock_holder


class AlreadyUp(Exception):
    """Another supervisor is running."""


class ServiceLock:
    """Held by the supervisor while it runs; the file holds the ids of its processes."""

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
    """Return the ids of the processes behind a lock; empty if it is free."""
    try:
        found: dict[str, int] = json.loads(lock_holder(path) or "{}")
    except ValueError:  # read while it is written
        return {}
    return found
