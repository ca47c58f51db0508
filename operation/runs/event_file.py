"""metrics.jsonl: one event per line, written as it happens and read while it grows.

Every line carries the version of the events. A reader refuses those of a newer version, whose
fields it can't know.
"""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from operation.disk_space import DiskFull, is_full

VERSION = 1
FILE_NAME = "metrics.jsonl"
ROUTES = "routes.jsonl"  # who sent to whom: a file of its own, for the coordinator alone

Event = dict[str, Any]


class NewerEvents(Exception):
    """A file of events was written by a newer FedDC."""


class EventFile:
    """Reads each line of a growing file once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.position = 0  # end of the last complete line that was read

    def new_events(self, *, until: int | None = None) -> list[Event]:
        """Return the events since the last call, or up to a position; none without a file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.position)
                written = file.read() if until is None else file.read(until - self.position)
        except FileNotFoundError:
            return []
        complete = written[: written.rfind(b"\n") + 1]  # the last line may be incomplete
        self.position += len(complete)
        return [event for line in complete.splitlines() if (event := self._read(line)) is not None]

    def _read(self, line: bytes) -> Event | None:
        try:
            event = json.loads(line)
        except ValueError:  # incomplete: its ServerApp was killed
            return None
        if not isinstance(event, dict):
            return None
        version = event.get("version", VERSION)  # lines of 0.1 have none
        if version != VERSION:
            raise NewerEvents(
                f"{self._path} has events of version {version}, this FedDC reads version "
                f"{VERSION}: update it"
            )
        return event


class EventWriter:
    """Appends events to a file."""

    def __init__(self, path: Path, *, append: bool, mode: int = 0o644) -> None:
        """Open the file; without `append` it must not exist, so no other run is overwritten."""
        is_cut_off = append and path.exists() and not path.read_bytes().endswith(b"\n")
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if append else os.O_EXCL)
        self._path = path
        self._file = os.fdopen(os.open(path, how, mode), "ab", buffering=0)
        if is_cut_off and path.stat().st_size:  # the run was killed while it wrote
            self._append(b"\n")

    def write(self, event: str, **fields: object) -> None:
        """Write a line; DiskFull if it does not fit, and nothing of it is written."""
        line = {"event": event, "version": VERSION, "time": time.time(), **fields}
        self._append((json.dumps(finite(line)) + "\n").encode())

    def close(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()

    def _append(self, data: bytes) -> None:
        descriptor, left = self._file.fileno(), data
        before = os.fstat(descriptor).st_size
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError as error:
            os.ftruncate(descriptor, before)
            if is_full(error):
                raise DiskFull(self._path, len(data)) from error
            raise


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value
