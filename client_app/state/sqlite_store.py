"""A hospital's state on disk: one SQLite file, changed by one agent at a time.

What belongs to an experiment is encrypted under the experiment's own key, which is in a file beside
the database. SQLite leaves copies of deleted entries in free pages and in its journal; without the
key nobody can read them.
"""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from operation.clock import Clock
from operation.locks import LockHeld, ProcessLock

from .experiment_keys import KEY_FOLDER, ExperimentKeys
from .store import StoreFull, UnreadableExperiment, experiment_of
from .store_file import StoreError, connect, upgrade

logger = logging.getLogger(__name__)


class SqliteStore:
    """The agent's `Store`: every change is on disk when the call returns."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        """Open or create the store, and lock it against other agents until it is closed."""
        self._path, self._clock = path, clock or Clock()
        self._written = 0  # bytes, in the transaction
        self._keys = ExperimentKeys(path.parent / KEY_FOLDER)
        self._lock: ProcessLock | None = _lock(path.with_suffix(".lock"))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            upgrade(path)
            self._connection = connect(path)
            # The last agent may have been killed before it did.
            self._destroy_unused_keys()
            for experiment, reason in self.unreadable().items():
                logger.error("experiment %s is refused: %s", experiment, reason)
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def for_reading(cls, path: Path) -> "SqliteStore":
        """Open a read-only snapshot; works while an agent has the store open."""
        store = cls.__new__(cls)
        store._path, store._clock, store._lock, store._written = path, Clock(), None, 0
        store._keys, store._keys_changed = ExperimentKeys(path.parent / KEY_FOLDER), False
        store._connection = connect(path)
        store._connection.execute("PRAGMA query_only = ON")
        store._connection.execute("BEGIN")
        return store

    def get(self, name: str) -> bytes | None:
        row = self._read(name)
        if row is None:
            return None
        nonce, value = row
        experiment = experiment_of(name)
        if experiment is None:
            return bytes(value)
        return self._keys.decrypt(str(self._key(experiment)), name, nonce, value)

    def put(self, name: str, value: bytes) -> None:
        with self._within_transaction():
            nonce, experiment = None, experiment_of(name)
            if experiment is not None:
                key = self._key(experiment) or self._new_key(experiment, self._clock.utc())
                nonce, value = self._keys.encrypt(key, name, value)
            self._write(name, nonce, value)

    def delete(self, prefix: str) -> None:
        self._connection.execute(
            "DELETE FROM memory WHERE substr(name, 1, length(?1)) = ?1", (prefix,)
        )

    def experiments(self) -> list[str]:
        return [name for (name,) in self._connection.execute("SELECT id FROM experiments")]

    def older_than(self, seconds: float) -> list[str]:
        query = "SELECT id FROM experiments WHERE since < ?"
        limit = self._clock.utc() - seconds
        return [name for (name,) in self._connection.execute(query, (limit,))]

    def unreadable(self) -> dict[str, str]:
        """Return the experiments whose key is missing or damaged, with the reason."""
        found = {}
        for experiment in self.experiments():
            try:
                self._keys.check(str(self._key(experiment)))
            except UnreadableExperiment as error:
                found[experiment] = str(error)
        return found

    def destroy(self, experiment: str) -> None:
        with self._within_transaction():
            self.delete(f"{experiment}/")
            self._connection.execute("DELETE FROM experiments WHERE id = ?", (experiment,))
            self._keys_changed = True

    def renew_key(self, experiment: str) -> None:
        with self._within_transaction():
            query = "SELECT key, since FROM experiments WHERE id = ?"
            row = self._connection.execute(query, (experiment,)).fetchone()
            if row is None:
                return
            old, since = row
            new = self._new_key(experiment, since)
            query = "SELECT name FROM memory WHERE substr(name, 1, length(?1)) = ?1"
            for (name,) in self._connection.execute(query, (f"{experiment}/",)).fetchall():
                value = self._keys.decrypt(old, name, *self._read(name))
                self._write(name, *self._keys.encrypt(new, name, value))

    def append_audit(self, line: bytes) -> None:
        self._written += len(line)
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
        self._written = 0
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:  # SQLite ends it by itself when the disk is full
                self._connection.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise StoreFull(self._path, self._written) from error
            raise
        finally:
            # The keys of ended experiments, and new ones that were not committed.
            if self._keys_changed:
                self._destroy_unused_keys()

    def close(self) -> None:
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def _within_transaction(self) -> AbstractContextManager[None]:
        return nullcontext() if self._connection.in_transaction else self.transaction()

    def _read(self, name: str) -> Any:
        query = "SELECT nonce, value FROM memory WHERE name = ?"
        return self._connection.execute(query, (name,)).fetchone()

    def _write(self, name: str, nonce: bytes | None, value: bytes) -> None:
        self._written += len(value)
        self._connection.execute(
            # An update writes to the pages that the old value had; a replacement would free them.
            "INSERT INTO memory (name, nonce, value) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET nonce = excluded.nonce, value = excluded.value",
            (name, nonce, value),
        )

    def _key(self, experiment: str) -> str | None:
        query = "SELECT key FROM experiments WHERE id = ?"
        row = self._connection.execute(query, (experiment,)).fetchone()
        return None if row is None else str(row[0])

    def _new_key(self, experiment: str, since: float) -> str:
        # Before it is needed to read anything, it is on the disk.
        self._keys_changed = True
        key = self._keys.create(experiment)
        self._connection.execute(
            "INSERT OR REPLACE INTO experiments VALUES (?, ?, ?)", (experiment, key, since)
        )
        return key

    def _destroy_unused_keys(self) -> None:
        used = {key for (key,) in self._connection.execute("SELECT key FROM experiments")}
        self._keys_changed = not self._keys.keep_only(used)


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
