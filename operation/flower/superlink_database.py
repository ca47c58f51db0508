"""Erase what was sent in ended runs from a SuperLink's database.

Flower deletes the messages and models of an ended run when somebody next asks for the run, and
leaves their bytes in free pages and in the write-ahead log. What stays after an erasure are nodes,
runs, the ServerApps' logs and the app bundle, which holds no code and no data.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

# Flower waits 5 s for the database before a request fails: nothing here may take as long.
_WAIT_SECONDS = 2.0
_RUNNING = "SELECT EXISTS (SELECT 1 FROM task WHERE finished_at IS NULL)"
# Models are deleted a few pieces at a time: deleting gigabytes takes longer. The latest come first,
# and an object is always later than its children. So what is left is whole if a run begins
# meanwhile, which may send the same bytes: Flower takes an object that it has for complete.
_DELETE = (
    "DELETE FROM message_ins",
    "DELETE FROM message_res",
    "DELETE FROM object_push_session_pending",
    "DELETE FROM object_push_session_roots",
    "DELETE FROM object_push_sessions",
    "DELETE FROM run_objects",
    "DELETE FROM object_children WHERE parent_id IN "
    "(SELECT object_id FROM objects ORDER BY rowid DESC LIMIT 4)",
    "DELETE FROM objects WHERE rowid IN (SELECT rowid FROM objects ORDER BY rowid DESC LIMIT 4)",
)


class NotErased(Exception):
    """The database could not be erased, for instance because it is in use; the message says why."""


def ended_runs(database: Path) -> int | None:
    """Return how many tasks of runs the database knows, or None if there is one that runs."""
    with _opened(database) as connection:
        query = "SELECT count(*), count(finished_at) FROM task"
        known, finished = connection.execute(query).fetchone()
    return int(known) if known and known == finished else None


def erase(database: Path, *, unless_running: bool) -> bool:
    """Erase all messages and models from the file, its free pages and its write-ahead log.

    Nothing is done, and False returned, where `unless_running` is set and a run has not ended. The
    SuperLink may have the file open: its readers go on, and its writers wait for a moment.
    """
    with _opened(database) as connection:
        left = True
        while left:
            connection.execute("BEGIN IMMEDIATE")
            if unless_running and connection.execute(_RUNNING).fetchone() == (1,):
                connection.execute("ROLLBACK")
                return False
            left = sum(connection.execute(statement).rowcount for statement in _DELETE) > 0
            connection.execute("COMMIT")
        connection.execute("VACUUM")
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise NotErased(f"{database}: the write-ahead log is in use")
    return True


@contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(
            sqlite3.connect(
                f"{database.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=_WAIT_SECONDS,
                isolation_level=None,
            )
        ) as connection:
            connection.execute("PRAGMA temp_store = MEMORY")  # VACUUM copies what is left
            yield connection
    except sqlite3.Error as error:
        raise NotErased(f"{database}: {error}") from error
