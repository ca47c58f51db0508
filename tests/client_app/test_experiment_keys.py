"""One key file per experiment: everything stored for it is lost with that file, nothing else is."""

import os
import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client_app.state.experiment_keys import ExperimentKeys
from client_app.state.sqlite_store import SqliteStore
from client_app.state.store import ENDED, StoreFull, UnreadableExperiment
from client_app.state.store_file import StoreError
from operation import files
from tests.client_app.processes import run_script
from tests.client_app.stored_bytes import is_somewhere
from tests.fake_clock import FakeClock

DAY = 24 * 60 * 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "memory.sqlite")
    yield opened
    opened.close()


def keys(folder: Path) -> dict[str, bytes]:
    """Return the key files by the experiment's id."""
    paths = (folder / "keys").glob("*")
    return {path.name.rpartition("@")[0]: path.read_bytes() for path in paths}


def reopened(store: SqliteStore, path: Path) -> SqliteStore:
    store.close()
    return SqliteStore(path / "memory.sqlite")


def test_each_experiment_has_a_key_file_of_its_own_for_the_owner_only(
    store: SqliteStore, tmp_path: Path
) -> None:
    with store.transaction():
        for experiment in ("e1", "e2"):
            store.put(f"{experiment}/sealing-key", b"s" * 32)
            store.put(f"{experiment}/member-key", b"m" * 32)

    found = keys(tmp_path)
    assert sorted(found) == ["e1", "e2"]
    assert found["e1"] != found["e2"]
    assert {len(key) for key in found.values()} == {32}
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()]
    assert modes == [0o600, 0o600]
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


def test_nothing_of_an_open_experiment_is_stored_readably(
    store: SqliteStore, tmp_path: Path
) -> None:
    secret, outlives = os.urandom(100_000), os.urandom(64)
    store.put("e/answer", secret)
    store.put("audit-head", outlives)

    assert not is_somewhere(secret, tmp_path)
    assert is_somewhere(outlives, tmp_path)
    assert store.get("e/answer") == secret


def test_the_same_value_is_encrypted_differently_each_time(
    store: SqliteStore, tmp_path: Path
) -> None:
    seen = set()
    for _ in range(3):
        store.put("e/answer", bytes(100))
        reader = sqlite3.connect(tmp_path / "memory.sqlite")
        seen.add(reader.execute("SELECT nonce, value FROM memory").fetchone())
        reader.close()
    assert len(seen) == 3


def test_entries_that_an_intruder_swapped_are_not_read(store: SqliteStore, tmp_path: Path) -> None:
    store.put("e/member-key", b"old")
    store.put("e/key-share", b"new")
    store.put("f/key-share", b"untouched")
    intruder = sqlite3.connect(tmp_path / "memory.sqlite")
    with intruder:
        intruder.execute("UPDATE memory SET name = 'e/x' WHERE name = 'e/member-key'")
        intruder.execute("UPDATE memory SET name = 'e/member-key' WHERE name = 'e/key-share'")
    intruder.close()

    with pytest.raises(UnreadableExperiment, match=r"e/member-key can't be decrypted with .*/e@"):
        store.get("e/member-key")
    assert store.get("f/key-share") == b"untouched"


def test_destroying_an_experiment_destroys_its_key_and_no_other(
    store: SqliteStore, tmp_path: Path
) -> None:
    ids = ["e", "e.1", "E", "e_", "e-1", "0", "a" * 64]  # all that an id may look like
    for experiment in ids:
        store.put(f"{experiment}/entry", experiment.encode())
    before = keys(tmp_path)
    assert sorted(before) == sorted(ids)

    store.destroy("e")

    assert store.experiments() == sorted(ids[1:])
    assert store.get("e/entry") is None
    assert not is_somewhere(before["e"], tmp_path)
    assert keys(tmp_path) == {name: key for name, key in before.items() if name != "e"}
    for experiment in ids[1:]:
        assert store.get(f"{experiment}/entry") == experiment.encode()


def test_a_key_is_overwritten_before_its_file_is_removed(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("e/entry", b"value")
    (path,) = (tmp_path / "keys").iterdir()
    second = tmp_path / "still-there"
    os.link(path, second)  # shows what the disk's blocks hold after the name is gone

    store.destroy("e")

    assert not path.exists()
    assert second.read_bytes() == bytes(32)


def test_a_transaction_that_fails_leaves_no_key(store: SqliteStore, tmp_path: Path) -> None:
    def fail() -> None:
        with store.transaction():
            store.put("e/entry", b"value")
            assert list(keys(tmp_path)) == ["e"]
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert keys(tmp_path) == {}
    assert store.experiments() == []


def test_a_close_that_fails_keeps_the_key(store: SqliteStore, tmp_path: Path) -> None:
    store.put("e/entry", b"value")
    before = keys(tmp_path)

    def fail() -> None:
        with store.transaction():
            store.destroy("e")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert keys(tmp_path) == before
    assert store.get("e/entry") == b"value"


def test_an_experiment_that_begins_again_in_one_transaction_gets_another_key(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.put("e/entry", b"old")
    before = keys(tmp_path)
    with store.transaction():
        store.destroy("e")
        store.put("e/entry", b"new")
    assert store.get("e/entry") == b"new"
    assert list(keys(tmp_path)) == ["e"]
    assert not is_somewhere(before["e"], tmp_path)


def test_a_renewed_key_reads_what_is_left_and_the_old_one_is_destroyed(
    store: SqliteStore, tmp_path: Path
) -> None:
    entries = {f"e/{name}": os.urandom(20_000) for name in ("a", "b/c", "member-key")}
    for name, value in entries.items():
        store.put(name, value)
    before = keys(tmp_path)

    with store.transaction():
        store.delete("e/member-key")
        store.renew_key("e")

    assert not is_somewhere(before["e"], tmp_path)
    store = reopened(store, tmp_path)
    assert store.get("e/a") == entries["e/a"]
    assert store.get("e/b/c") == entries["e/b/c"]
    assert store.get("e/member-key") is None
    store.close()


# --- killed at the worst moments ------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from client_app.state.experiment_keys import ExperimentKeys
from client_app.state.sqlite_store import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
store.put("other/entry", b"stays")
"""
BEFORE_THE_FIRST_COMMIT = """
with store.transaction():
    store.put("e/entry", b"value")
    os.kill(os.getpid(), signal.SIGKILL)
"""
BEFORE_THE_KEY_IS_DESTROYED = """
store.put("e/entry", b"value")
ExperimentKeys.keep_only = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store.destroy("e")
"""


@pytest.mark.parametrize("moment", [BEFORE_THE_FIRST_COMMIT, BEFORE_THE_KEY_IS_DESTROYED])
def test_a_key_that_a_killed_agent_left_over_is_destroyed_by_the_next(
    moment: str, tmp_path: Path
) -> None:
    killed = run_script(KILLED + moment, str(tmp_path / "memory.sqlite"))
    assert killed.wait() == -signal.SIGKILL
    left = keys(tmp_path)
    assert set(left) == {"e", "other"}

    store = SqliteStore(tmp_path / "memory.sqlite")

    assert set(keys(tmp_path)) == {"other"}
    assert not is_somewhere(left["e"], tmp_path)
    assert store.get("e/entry") is None
    assert store.get("other/entry") == b"stays"
    store.close()


def test_a_key_that_could_not_be_destroyed_is_reported_and_tried_again(
    store: SqliteStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.put("e/entry", b"value")

    def fail(path: Path) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(files, "overwrite_and_remove", fail)
        store.destroy("e")
    assert "can't be destroyed (Read-only file system)" in caplog.text
    assert store.get("e/entry") is None
    assert list(keys(tmp_path)) == ["e"]

    store.put("anything", b"else")

    assert keys(tmp_path) == {}


def test_without_space_for_a_key_nothing_is_changed(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("e/entry", b"value")

    def full(path: Path, data: bytes, **_: object) -> None:
        path.write_bytes(data[:7])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_new", full)
        with pytest.raises(StoreFull, match=r"no space left for .*keys"):
            store.put("f/entry", b"value")

    assert store.experiments() == ["e"]
    assert set(keys(tmp_path)) == {"e"}
    store.put("f/entry", b"goes on")
    assert store.get("f/entry") == b"goes on"


# --- missing, damaged, restored -------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change(path: Path) -> None:
    path.write_bytes(bytes(32))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (Path.unlink, "No such file or directory"),
        (cut, "is damaged, it has 31 bytes instead of 32"),
        (change, "can't be decrypted"),
    ],
)
def test_without_its_key_an_experiment_is_unreadable_and_the_others_are_served(
    spoil: Callable[[Path], None], message: str, store: SqliteStore, tmp_path: Path
) -> None:
    store.put("e/entry", b"value")
    store.put("f/entry", b"other")
    store.close()
    (path,) = (tmp_path / "keys").glob("e@*")
    spoil(path)

    store = SqliteStore(tmp_path / "memory.sqlite")

    with pytest.raises(UnreadableExperiment, match=message):
        store.get("e/entry")
    assert store.get("f/entry") == b"other"
    assert sorted(store.experiments()) == ["e", "f"]
    store.destroy("e")
    assert store.get("e/entry") is None
    store.close()


def test_an_experiment_without_its_key_is_named_in_the_log_at_the_start(
    store: SqliteStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("e/entry", b"value")
    store.close()
    shutil.rmtree(tmp_path / "keys")

    SqliteStore(tmp_path / "memory.sqlite").close()

    assert "experiment e is refused: " in caplog.text
    assert "continues without this hospital" in caplog.text


def test_a_database_restored_without_its_keys_does_not_mistake_newer_keys_for_its_own(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.put("e/entry", b"old")
    store.close()
    shutil.copy(tmp_path / "memory.sqlite", tmp_path / "backup")
    store = SqliteStore(tmp_path / "memory.sqlite")
    store.destroy("e")
    store.put("e/entry", b"new")
    store.close()
    shutil.copy(tmp_path / "backup", tmp_path / "memory.sqlite")

    store = SqliteStore(tmp_path / "memory.sqlite")

    with pytest.raises(UnreadableExperiment, match="No such file"):
        store.get("e/entry")
    store.close()


def test_a_reader_changes_no_keys_and_reads_what_is_encrypted(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.put("e/entry", b"value")
    with store.transaction():
        store.put("f/entry", b"not committed yet")
        before = keys(tmp_path)
        reader = SqliteStore.for_reading(tmp_path / "memory.sqlite")
        assert reader.get("e/entry") == b"value"
        assert reader.experiments() == ["e"]
        reader.close()
        assert keys(tmp_path) == before


# --- age ------------------------------------------------------------------------------------------


def test_an_experiments_age_counts_from_its_first_entry(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "memory.sqlite", clock)
    store.put("e/entry", b"value")
    clock.time += 60 * DAY
    store.put("f/entry", b"value")
    store.put("e/entry", b"again")
    store.renew_key("e")
    clock.time += 29 * DAY
    store.close()
    store = SqliteStore(tmp_path / "memory.sqlite", clock)
    assert store.older_than(90 * DAY) == []

    clock.time += 2 * DAY

    assert store.older_than(90 * DAY) == ["e"]
    store.close()


# --- a store of an earlier version ----------------------------------------------------------------


def test_an_unencrypted_store_loses_its_experiments_and_keeps_what_outlives_them(
    tmp_path: Path,
) -> None:
    secret, reply = os.urandom(40_000), os.urandom(64)
    path = tmp_path / "memory.sqlite"
    earlier = sqlite3.connect(path, isolation_level=None)
    earlier.executescript(
        "PRAGMA journal_mode = PERSIST; PRAGMA user_version = 1;"
        "CREATE TABLE memory (name TEXT PRIMARY KEY, value BLOB NOT NULL);"
        "CREATE TABLE audit (sequence INTEGER PRIMARY KEY, line BLOB NOT NULL);"
    )
    for name, value in (
        ("audit-head", b"head"),
        ("open/sealing-key", secret),
        ("done/answer/close", reply),
    ):
        earlier.execute("INSERT INTO memory VALUES (?, ?)", (name, value))
    earlier.execute("INSERT INTO audit (line) VALUES (?)", (b"line",))
    earlier.close()
    assert is_somewhere(secret, tmp_path)
    with pytest.raises(StoreError, match="start the agent once"):
        SqliteStore.for_reading(path)

    store = SqliteStore(path)

    assert not is_somewhere(secret, tmp_path)
    assert store.experiments() == []
    assert store.get("audit-head") == b"head"
    assert store.get(f"{ENDED}done") == reply
    assert store.audit_lines() == [b"line"]
    store.put("new/entry", b"value")
    assert store.get("new/entry") == b"value"
    store.close()


def test_keys_are_random(tmp_path: Path) -> None:
    made = ExperimentKeys(tmp_path / "keys")
    names = {made.create("e") for _ in range(20)}
    contents = {path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    assert len(names) == len(contents) == 20
