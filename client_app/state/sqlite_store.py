"""A hospital's state on disk: one SQLite file, changed by one agent at a time.

Deleted entries are overwritten, both in the file (`secure_delete`) and in its rollback journal,
which is kept (`PERSIST`) so that there is one place to overwrite. Drives and file systems that
write every change to a new place keep old copies; only full-disk encryption helps there.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from operation.locks import LockHeld, ProcessLock

from .store import StoreFull

_VERSION = 1
_WAIT_SECONDS = 10.0  # `feddc hospital audit` reads while the agent writes
_ZEROS = bytes(1 << 20)
_SETTINGS = (
    "page_size = 16384",  # models are megabytes large
    "journal_mode = PERSIST",
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
)
_TABLES = """
    CREATE TABLE IF NOT EXISTS memory (name TEXT PRIMARY KEY, value BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS audit (sequence INTEGER PRIMARY KEY, line BLOB NOT NULL);
"""


class StoreError(Exception):
    """The store can't be opened; the message says why and what to do."""


class SqliteStore:
    """The agent's `Store`: every change is on disk when the call returns."""

    def __init__(self, path: Path) -> None:
        """Open or create the store, and lock it against other agents until it is closed."""
        self._path = path
        self._deleted = False
        self._lock: ProcessLock | None = _lock(path.with_suffix(".lock"))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._connection = _connect(path)
            self._overwrite_journal()  # the last agent may have been killed before it did
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def for_reading(cls, path: Path) -> "SqliteStore":
        """Open a read-only snapshot; works while an agent has the store open."""
        store = cls.__new__(cls)
        store._path, store._deleted, store._lock = path, False, None
        store._connection = _connect(path)
        store._connection.execute("PRAGMA query_only = ON")
        store._connection.execute("BEGIN")
        return store

    def get(self, name: str) -> bytes | None:
        query = "SELECT value FROM memory WHERE name = ?"
        row = self._connection.execute(query, (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, name: str, value: bytes) -> None:
        self._connection.execute(
            "INSERT INTO memory VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def delete(self, prefix: str) -> None:
        self._connection.execute(
            "DELETE FROM memory WHERE substr(name, 1, length(?1)) = ?1", (prefix,)
        )
        if self._connection.in_transaction:
            self._deleted = True
        else:
            self._overwrite_journal()

    def append_audit(self, line: bytes) -> None:
        self._connection.execute("INSERT INTO audit (line) VALUES (?)", (line,))

    def audit_line(self, number: int) -> bytes | None:
        query = "SELECT CAST(line AS BLOB) FROM audit ORDER BY sequence LIMIT 1 OFFSET ?"
        row = self._connection.execute(query, (number - 1,)).fetchone()
        return bytes(row[0]) if row else None

    def audit_lines(self) -> list[bytes]:
        # An intruder may have written text there: it comes back as bytes too.
        query = "SELECT CAST(line AS BLOB) FROM audit ORDER BY sequence"
        return [bytes(line) for (line,) in self._connection.execute(query)]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._deleted = False
            if self._connection.in_transaction:  # SQLite ends it by itself when the disk is full
                self._connection.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise StoreFull(f"no space left for {self._path}") from error
            raise
        if self._deleted:
            self._deleted = False
            self._overwrite_journal()

    def close(self) -> None:
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def _overwrite_journal(self) -> None:
        """Overwrite the old pages with zeros; SQLite reads a journal of zeros as a finished one."""
        try:
            journal = os.open(f"{self._path}-journal", os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            left = os.fstat(journal).st_size
            while left:
                left -= os.write(journal, _ZEROS[:left])
            os.fsync(journal)
        finally:
            os.close(journal)


def _lock(path: Path) -> ProcessLock:
    lock = ProcessLock(path)
    try:
        lock.acquire(str(os.getpid()))
    except LockHeld as error:
        raise StoreError(
            f"{path.parent}: in use by another agent (process {error.holder}); "
            "stop that agent first"
        ) from None
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_WAIT_SECONDS,
            isolation_level=None,
            check_same_thread=False,  # the agent's worker thread is not the one that opens it
        )
    except sqlite3.Error as error:
        raise StoreError(
            f"{path}: {error}; check that the file exists and belongs to this user"
        ) from error
    try:
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(f"{path}: {error}; restore the state folder from a backup") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;"
        )
    elif version != _VERSION:
        raise StoreError(
            f"{path}: has format {version}, this version of feddc uses format {_VERSION}; run the "
            "version of feddc that wrote it"
        )
