"""The SQLite file of a hospital's store: its settings and tables, and how older ones are read."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from operation import files

from .store import ENDED

logger = logging.getLogger(__name__)

_VERSION = 2
_UNENCRYPTED_VERSION = 1
_WAIT_SECONDS = 10.0  # `feddc hospital audit` reads while the agent writes
_SETTINGS = (
    "page_size = 16384",  # models are megabytes large
    "journal_mode = PERSIST",
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
)
# What belongs to an experiment is encrypted under the key in the file that `experiments` names, and
# has a nonce.
_EXPERIMENTS = """
    CREATE TABLE IF NOT EXISTS
        experiments (id TEXT PRIMARY KEY, key TEXT NOT NULL, since REAL NOT NULL);
"""
_TABLES = f"""
    CREATE TABLE IF NOT EXISTS memory (name TEXT PRIMARY KEY, value BLOB NOT NULL, nonce BLOB);
    CREATE TABLE IF NOT EXISTS audit (sequence INTEGER PRIMARY KEY, line BLOB NOT NULL);
    {_EXPERIMENTS}
"""


class StoreError(Exception):
    """The store can't be opened; the message says why and what to do."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, with its tables; StoreError says why it can't be used."""
    connection = _open(path)
    try:
        if _version(connection) == 0:
            _change(connection, _TABLES)
        _check_version(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(f"{path}: {error}; restore the state folder from a backup") from error
    except BaseException:
        connection.close()
        raise
    return connection


def upgrade(path: Path) -> None:
    """Remove the experiments of a file that an earlier version wrote, and keep its audit log.

    They were not encrypted, and can't be continued with this version's messages. Killed at any
    moment, it starts again: the version changes last.
    """
    with closing(_open(path)) as connection:
        try:
            if _version(connection) != _UNENCRYPTED_VERSION:
                return
        except sqlite3.Error:
            return  # `connect` reports it
        logger.warning("%s: written by an earlier version; its experiments are removed", path)
        connection.execute(
            "DELETE FROM memory WHERE instr(name, '/') AND name NOT GLOB '*/answer/close'"
        )
        connection.execute("VACUUM")
    files.overwrite_and_remove(path.with_name(f"{path.name}-journal"))
    with closing(_open(path)) as connection:
        _version(connection)
        _change(
            connection,
            "ALTER TABLE memory ADD COLUMN nonce BLOB;"  # noqa: S608 (constants)
            f"UPDATE memory SET name = '{ENDED}' || substr(name, 1, instr(name, '/') - 1)"
            f" WHERE instr(name, '/'); {_EXPERIMENTS}",
        )


def _open(path: Path) -> sqlite3.Connection:
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
    return connection


def _change(connection: sqlite3.Connection, statements: str) -> None:
    connection.executescript(
        f"BEGIN IMMEDIATE; {statements} PRAGMA user_version = {_VERSION}; COMMIT;"
    )


def _version(connection: sqlite3.Connection) -> int:
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version == _UNENCRYPTED_VERSION:
        raise StoreError(f"{path}: written by an earlier version; start the agent once")
    if version != _VERSION:
        raise StoreError(
            f"{path}: has format {version}, this version of feddc uses format {_VERSION}; run the "
            "version of feddc that wrote it"
        )
