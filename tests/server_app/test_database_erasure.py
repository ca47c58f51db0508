"""The SuperLink's database after the end of a run: no byte of what was sent is left."""

import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.object_store.sql_object_store import SqlObjectStore

from operation.flower.superlink_database import NotErased, ended_runs, erase
from server_app.services.database_erasure import erase_after_runs, erase_stopped
from tests.client_app.stored_bytes import found
from tests.fake_clock import FakeClock

LENGTHS = (300, 5_000, 100_000, 2_000_000)


class SuperLinkDatabase:
    """A database that Flower's own code has made and keeps open, as in a running SuperLink."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.db"
        self._store = SqlObjectStore(str(self.path), verify=False)
        self._store.initialize()
        self.waiting: list[bytes] = []
        self.fetched: list[bytes] = []  # and deleted by Flower
        self.roots: set[str] = set()
        self._runs = 0

    def start_run(self) -> int:
        self._runs += 1
        self._execute(
            "INSERT INTO task (task_id, type, run_id, pending_at) VALUES (?, 'serverapp', ?, '')",
            self._runs,
            self._runs,
        )
        return self._runs

    def end_run(self, run: int) -> None:
        self._execute("UPDATE task SET finished_at = 'now' WHERE run_id = ?", run)

    def send(self, run: int) -> None:
        """Let models of several sizes pass; half of them are fetched."""
        for length in LENGTHS:
            self.waiting.append(os.urandom(length))
            self.fetched.append(os.urandom(length))
            self._put(run, self.waiting[-1])
            self._store.delete(self._put(run, self.fetched[-1]))
        self._execute("INSERT INTO node (node_id, name) VALUES (?, 'St Mary')", 100 + run)

    def send_trees(self, run: int, models: int) -> None:
        """Send models of three pieces each, one of which they share, as a resumed run does."""
        shared = b"shared".ljust(100)
        for number in range(models):
            pieces = [shared, b"first of %d" % number, b"second of %d" % number]
            contents = {hashlib.sha256(piece).hexdigest(): piece for piece in pieces}
            root = hashlib.sha256(b"".join(pieces)).hexdigest()
            tree = ObjectTree(object_id=root, children=[ObjectTree(object_id=i) for i in contents])
            for name in self._store.preregister(run, tree):
                self._store.put(name, contents.get(name, b"root"))
            self.roots.add(root)

    def whole_trees(self) -> int:
        """Return how many of the models can be fetched with all their pieces."""
        trees = [self._store.get_object_tree(root) for root in self.roots]
        names = [{child.object_id for child in tree.children} for tree in trees]
        return sum(len(found) == 3 and all(map(self._store.get, found)) for found in names)

    def start_run_when_only(self, objects: int) -> None:
        """Let a run begin as soon as so many objects are left."""
        is_so = f"(SELECT count(*) FROM objects) = {objects}"  # noqa: S608 (a number)
        values = "(task_id, type, run_id, pending_at) VALUES (99, 'serverapp', 2, '')"
        self._execute(
            f"CREATE TRIGGER begins AFTER DELETE ON objects WHEN {is_so} "
            f"BEGIN INSERT INTO task {values}; END"
        )

    def heartbeat(self) -> None:
        self._store.query("UPDATE node SET online_until = random()")

    def _put(self, run: int, payload: bytes) -> str:
        name = hashlib.sha256(payload).hexdigest()
        self._store.preregister(run, ObjectTree(object_id=name))
        self._store.put(name, payload)
        return name

    def nodes(self) -> int:
        return self._execute("SELECT count(*) FROM node")[0][0]

    def left(self) -> list[bytes]:
        return found(self.waiting + self.fetched, self.path.parent)

    def _execute(self, query: str, *values: object) -> list[tuple[int]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(query, values).fetchall()

    def close(self) -> None:
        assert self._store._engine is not None
        self._store._engine.dispose()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SuperLinkDatabase]:
    made = SuperLinkDatabase(tmp_path)
    yield made
    made.close()


def test_after_a_run_nothing_that_was_sent_is_left_in_any_byte(
    database: SuperLinkDatabase,
) -> None:
    """An attack found 21 readable models in the write-ahead log after their experiments' end."""
    run = database.start_run()
    database.send(run)
    assert set(database.waiting) < set(database.left())  # and what Flower has deleted
    database.end_run(run)

    assert erase(database.path, unless_running=True)

    assert database.left() == []
    assert database.nodes() == 1  # what is not sent by anybody stays
    second = database.start_run()
    database.send(second)  # the SuperLink's connections work on
    database.end_run(second)
    assert erase(database.path, unless_running=True)
    assert database.left() == []


def test_the_database_shrinks_to_what_is_left(database: SuperLinkDatabase) -> None:
    run = database.start_run()
    database.send(run)
    database.end_run(run)
    erase(database.path, unless_running=True)

    sizes = {path.name: path.stat().st_size for path in database.path.parent.iterdir()}

    assert sizes["state.db"] < 500_000
    assert sizes["state.db-wal"] == 0


def test_while_a_run_has_not_ended_nothing_is_erased(database: SuperLinkDatabase) -> None:
    first, second = database.start_run(), database.start_run()
    database.send(first)
    database.end_run(first)

    assert ended_runs(database.path) is None
    assert not erase(database.path, unless_running=True)
    assert set(database.waiting) <= set(database.left())

    database.end_run(second)
    assert ended_runs(database.path) == 2
    assert erase(database.path, unless_running=True)
    assert database.left() == []


@pytest.mark.parametrize("left", range(1, 10))
def test_a_run_that_begins_while_the_last_is_erased_can_send_the_same_again(
    database: SuperLinkDatabase, left: int
) -> None:
    run = database.start_run()
    database.send_trees(run, models=3)
    database.end_run(run)
    database.start_run_when_only(left)

    erase(database.path, unless_running=True)

    database.send_trees(run + 1, models=3)
    assert database.whole_trees() == 3


def test_a_stopped_superlinks_database_is_erased_whatever_state_its_runs_are_in(
    database: SuperLinkDatabase,
) -> None:
    database.send(database.start_run())
    database.close()

    assert erase_stopped(database.path) == ""

    assert database.left() == []
    assert erase_stopped(database.path.parent / "never started") == ""


def test_a_database_in_use_is_erased_later(
    database: SuperLinkDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operation.flower.superlink_database._WAIT_SECONDS", 0.01)
    run = database.start_run()
    database.send(run)
    database.end_run(run)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM objects").fetchone()
        with pytest.raises(NotErased, match="in use"):
            erase(database.path, unless_running=True)
        assert "in use" in erase_stopped(database.path)

    assert erase(database.path, unless_running=True)
    assert database.left() == []


def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"not a database" * 1000)
    assert "file is not a database" in erase_stopped(path)


class Ended(BaseException):
    """The services are stopped."""


class Script(FakeClock):
    """A clock at whose every sleep a step of a test is done."""

    def __init__(self, *steps: object) -> None:
        super().__init__()
        self._steps = iter(steps)

    def sleep(self, seconds: float) -> None:
        step = next(self._steps, None)
        if step is None:
            raise Ended
        assert callable(step)
        step()


def test_the_supervisor_erases_after_each_run_and_only_then(
    database: SuperLinkDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen: list[bool] = []

    def begin() -> None:
        run = database.start_run()
        database.send(run)
        seen.append(bool(database.left()))
        ends.append(run)

    def end() -> None:
        seen.append(bool(database.left()))
        database.end_run(ends.pop())

    def look() -> None:
        seen.append(bool(database.left()))

    ends: list[int] = []
    clock = Script(begin, end, look, begin, end, look, look)
    with pytest.raises(Ended):
        erase_after_runs(database.path, logging.getLogger("test"), clock)

    assert seen == [True, True, False, True, True, False, False]
    assert caplog.text.count("erased the messages and models of ended experiments") == 2


def test_the_supervisor_reports_a_database_that_it_can_not_erase(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database" * 1000)
    steps = [lambda: None] * 40
    with pytest.raises(Ended):
        erase_after_runs(tmp_path / "state.db", logging.getLogger("test"), Script(*steps))
    assert caplog.text.count("not erased yet") == 1


def test_the_superlink_goes_on_writing_while_its_database_is_erased(
    database: SuperLinkDatabase,
) -> None:
    run = database.start_run()
    database.send(run)
    database.end_run(run)
    erased = threading.Event()

    def write() -> int:
        count = 0
        while not erased.is_set():
            database.heartbeat()
            count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(10):
                with suppress(NotErased):  # tried again a second later
                    erase(database.path, unless_running=True)
        finally:
            erased.set()
        assert writing.result() > 0  # none of them failed
    assert erase(database.path, unless_running=True)
    assert database.left() == []
