"""Who runs the coordinator's services: a lock that goes with its process, however that ends."""

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path

from operation import files


class AlreadyUp(Exception):
    """Another process holds the lock."""


class ServiceLock:
    """Held by the supervisor while it lives; the file has the numbers of its processes."""

    def __init__(self, path: Path) -> None:
        files.make_folder(path.parent)
        self._path = path
        self._pids = {"supervisor": os.getpid()}

    def __enter__(self) -> "ServiceLock":
        self._file = self._path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyUp("the coordinator is already up") from error
        self._write()
        return self

    def note(self, part: str, pid: int) -> None:
        self._pids[part] = pid
        self._write()

    def __exit__(self, *_: object) -> None:
        self._file.truncate(0)
        self._file.close()

    def _write(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps(self._pids))
        self._file.flush()


def holders(path: Path) -> dict[str, int]:
    """Return the numbers of the processes behind a lock; none if nobody holds it."""
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return {}
    except BlockingIOError:
        with suppress(OSError, ValueError):
            found: dict[str, int] = json.loads(path.read_text())
            return found
    return {}
