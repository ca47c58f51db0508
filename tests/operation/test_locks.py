"""Locks between processes: one holder at a time, known by name, gone with its process."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from operation.locks import LockHeld, ProcessLock, lock_holder

HOLD = """
import sys
from pathlib import Path
from operation.locks import ProcessLock
lock = ProcessLock(Path(sys.argv[1]))
lock.acquire("the other")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def other(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_and_learns_who_holds_the_lock(
    path: Path, other: subprocess.Popen[str]
) -> None:
    with pytest.raises(LockHeld) as refused:
        ProcessLock(path).acquire("me")

    assert refused.value.holder == "the other"
    assert lock_holder(path) == "the other"


def test_the_lock_of_a_killed_process_is_free(path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()

    assert lock_holder(path) is None
    mine = ProcessLock(path)
    mine.acquire("me")
    assert lock_holder(path) == "me"
    mine.release()


def test_a_second_lock_in_the_same_process_is_refused_too(path: Path) -> None:
    lock = ProcessLock(path)
    lock.acquire("the first")

    with pytest.raises(LockHeld):
        ProcessLock(path).acquire("the second")
    assert lock_holder(path) == "the first"

    lock.release()
    assert lock_holder(path) is None
    ProcessLock(path).acquire("the second")


def test_asking_for_the_holder_makes_no_file(path: Path) -> None:
    assert lock_holder(path) is None
    assert not path.exists()


def test_the_file_is_its_owners_alone(path: Path) -> None:
    lock = ProcessLock(path)
    lock.acquire("me")

    assert path.stat().st_mode & 0o777 == 0o600
    lock.release()
