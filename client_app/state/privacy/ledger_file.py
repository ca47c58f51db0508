"""The ledger's file: a line for every release, on the disk before the release can leave.

It is outside the database, so that a database restored from a backup can't forget releases. Each
line has the hash of the previous one.
"""

import hashlib
import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from operation import files
from operation.disk_space import DiskFull, is_full
from protocol.canonical import canonical_json, read_canonical

# (multiplier, sampling rate, count) of releases with Gaussian noise; multiplier 0: without noise.
Spent = tuple[
    Annotated[float, Field(ge=0, allow_inf_nan=False)],
    Annotated[float, Field(gt=0, le=1)],
    Annotated[int, Field(ge=0)],
]
GENESIS = bytes(32).hex()


class LedgerError(Exception):
    """The ledger can't be used; the message says why and what to do."""


class LedgerLine(BaseModel):
    """What answering one request has cost."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    number: int
    previous: str
    time: str
    request: str  # the request's digest
    experiment: str
    leg: int
    releases: tuple[Spent, ...]

    def to_bytes(self) -> bytes:
        return canonical_json(self)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()


class LedgerFile:
    """The lines of the file; read once, then appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = _read(path)

    @property
    def last(self) -> str:
        """The digest of the last line."""
        return self.lines[-1].digest if self.lines else GENESIS

    def append(self, line: LedgerLine) -> None:
        """Add a line; it is on the disk when the call returns. DiskFull: it did not fit."""
        data = line.to_bytes() + b"\n"
        try:
            self._write(data)
        except OSError as error:
            if is_full(error):
                raise DiskFull(self._path, len(data)) from error
            raise
        self.lines.append(line)

    def _write(self, data: bytes) -> None:
        is_new = not self._path.exists()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            end = os.fstat(descriptor).st_size
            try:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, end)  # the disk is full: leave no half of a line
                raise
        if is_new:
            files.sync_folder(self._path.parent)


def _read(path: Path) -> list[LedgerLine]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror}; run this as the file's owner") from error
    complete = data.rpartition(b"\n")[0]
    lines: list[LedgerLine] = []
    previous = GENESIS
    for number, line in enumerate(complete.split(b"\n") if complete else [], start=1):
        try:
            entry = read_canonical(_LINE, line)
        except ValueError as error:
            raise LedgerError(f"{path}: line {number} can't be read: {error}; {_REMEDY}") from error
        if (entry.number, entry.previous) != (number, previous):
            raise LedgerError(f"{path}: line {number} does not follow the one before; {_REMEDY}")
        lines.append(entry)
        previous = hashlib.sha256(line).hexdigest()
    return lines


def open_ledger_file(path: Path) -> LedgerFile:
    """Open the file to append to it; the caller holds the lock of the store."""
    _cut_torn_line(path)
    return LedgerFile(path)


def _cut_torn_line(path: Path) -> None:
    """Remove the half of a line that a killed agent has left: what it was for never left."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "r+b") as file:
        data = file.read()
        end = data.rfind(b"\n") + 1
        if end != len(data):
            file.truncate(end)
            file.flush()
            os.fsync(descriptor)


_LINE: TypeAdapter[LedgerLine] = TypeAdapter(LedgerLine)
_REMEDY = "restore the file from its latest backup"
