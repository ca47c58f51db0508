"""The store: all or nothing, and one agent at a time."""

import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_app.state.sqlite_store import SqliteStore
from client_app.state.store_file import StoreError
from tests.client_app.processes import run_script


class Abandoned(Exception):
    pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "memory.sqlite")
    yield opened
    opened.close()


NAMES = st.sampled_from(["audit-head", "a/key", "a/answer", "a%/key", "ab/key", "A/key", "_/key"])
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.binary(max_size=40)),
    st.tuples(st.just("delete"), st.sampled_from(["a/", "a%", "_/", "b"]), st.just(b"")),
    st.tuples(st.just("append"), st.just(""), st.binary(max_size=20)),
)
TRANSACTIONS = st.lists(st.tuples(st.lists(STEPS, max_size=4), st.booleans()), max_size=6)


@settings(max_examples=25, deadline=None)
@given(TRANSACTIONS)
def test_it_stores_what_a_dictionary_and_a_list_would(
    transactions: list[tuple[list[tuple[str, str, bytes]], bool]],
) -> None:
    memory: dict[str, bytes] = {}
    lines: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        for steps, commits in transactions:
            store = SqliteStore(path)
            before = (dict(memory), list(lines))
            try:
                with store.transaction():
                    for kind, name, value in steps:
                        if kind == "put":
                            store.put(name, value)
                            memory[name] = value
                        elif kind == "delete":
                            store.delete(name)
                            memory = {k: v for k, v in memory.items() if not k.startswith(name)}
                        else:
                            store.append_audit(value)
                            lines.append(value)
                    if not commits:
                        raise Abandoned
            except Abandoned:
                memory, lines = before
            store.close()
        store = SqliteStore(path)
        names = ["audit-head", "a/key", "a/answer", "a%/key", "ab/key", "A/key", "_/key"]
        assert {n: v for n in names if (v := store.get(n)) is not None} == memory
        assert store.audit_lines() == lines
        store.close()


def test_files_are_for_their_owner_only(store: SqliteStore, tmp_path: Path) -> None:
    store.put("name", b"value")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("memory*")}
    assert modes == dict.fromkeys(("memory.lock", "memory.sqlite", "memory.sqlite-journal"), 0o600)


def test_a_second_agent_is_refused_and_shown_who_has_the_store(
    store: SqliteStore, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match=rf"another agent \(process {os.getpid()}\)"):
        SqliteStore(tmp_path / "memory.sqlite")


def test_it_can_be_read_while_an_agent_is_in_the_middle_of_a_transaction(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.append_audit(b"first")
    with store.transaction():
        store.append_audit(b"second")
        store.put("name", b"value")
        reader = SqliteStore.for_reading(tmp_path / "memory.sqlite")
        assert reader.audit_lines() == [b"first"]
        assert reader.get("name") is None
        with pytest.raises(sqlite3.OperationalError):
            reader.put("name", b"value")
        reader.close()
    assert store.audit_lines() == [b"first", b"second"]


WRITER = """
import sys
from pathlib import Path
from client_app.state.sqlite_store import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
while True:
    with store.transaction():
        n = int.from_bytes(store.get("e/one") or b"", "big") + 1
        store.put("e/one", n.to_bytes(8, "big"))
        store.append_audit(b"line %d" % n)
        store.delete("e/gone")
        store.put("e/gone", bytes(50_000))
        store.put("e/two", n.to_bytes(8, "big"))
    print(n, flush=True)
"""


@pytest.mark.timing
def test_killed_at_any_moment_it_holds_whole_transactions(tmp_path: Path) -> None:
    path, seen = tmp_path / "memory.sqlite", 0
    for transactions in (1, 3, 8, 20):
        writer = run_script(WRITER, str(path))
        assert writer.stdout is not None
        for _ in range(transactions):
            assert writer.stdout.readline()
        writer.kill()  # at whatever it does with the next one
        writer.wait()
        store = SqliteStore(path)
        count = int.from_bytes(store.get("e/one") or b"", "big")
        assert int.from_bytes(store.get("e/two") or b"", "big") == count
        assert store.audit_lines() == [b"line %d" % n for n in range(1, count + 1)]
        assert count >= seen + transactions
        seen = count
        store.close()


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    script = """
import resource, sqlite3, sys
from pathlib import Path
from client_app.state.sqlite_store import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
store.put("e/answer", b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
try:
    with store.transaction():
        store.put("e/other", b"new")
        store.put("e/answer", bytes(5_000_000))
except sqlite3.Error:
    print(store.get("e/answer"), store.get("e/other"))
store.put("e/other", b"goes on")
"""
    done = run_script(script, str(tmp_path / "memory.sqlite"))
    assert done.communicate()[0] == "b'old' None\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b"not a database at all" * 100), "restore"),
        (lambda path: _set_version(path, 7), "has format 7"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_left_alone(
    spoil: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "memory.sqlite"
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes()

    for _ in range(2):  # a failed attempt holds no lock
        with pytest.raises(StoreError, match=message):
            SqliteStore(path)

    assert path.read_bytes() == before


def test_reading_a_store_that_is_not_there_says_so_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that the file exists"):
        SqliteStore.for_reading(tmp_path / "memory.sqlite")
    assert list(tmp_path.iterdir()) == []


def _set_version(path: Path, version: int) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
