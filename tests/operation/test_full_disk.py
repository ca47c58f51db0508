"""What programs of all sides do on a file system that is really full."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from operation import files
from operation.disk_space import DiskFull, Reserve
from operation.locks import ProcessLock, lock_holder
from operation.runs.event_file import EventWriter
from tests.small_disk import fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=4) as place:
        yield place


def test_a_file_that_does_not_fit_is_named_and_the_earlier_one_stays(disk: Path) -> None:
    files.replace(disk / "state", b"before")
    filler = fill(disk)
    with pytest.raises(DiskFull, match=r"no space left for .*/state: 9\.0 kB are needed"):
        files.replace(disk / "state", bytes(9000))
    assert (disk / "state").read_bytes() == b"before"
    assert {path.name for path in disk.iterdir()} == {"state", "filler"}
    filler.unlink()
    files.replace(disk / "state", bytes(9000))


def test_the_reserve_has_room_for_the_reason_and_no_line_is_cut_off(disk: Path) -> None:
    reserve = Reserve(disk / "reserve")
    metrics = EventWriter(disk / "metrics.jsonl", append=True)
    metrics.write("started")
    fill(disk)
    with pytest.raises(DiskFull, match=r"no space left for .*/metrics\.jsonl: 5"):
        metrics.write("leg", text="x" * 5000)
    reserve.release()
    metrics.write("end", reason="the disk is full")
    metrics.close()
    lines = [json.loads(line) for line in (disk / "metrics.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["started", "end"]


def test_without_space_for_a_reserve_work_begins_all_the_same(disk: Path) -> None:
    fill(disk)
    Reserve(disk / "reserve").release()


def test_a_lock_is_held_without_space_to_say_by_whom(disk: Path) -> None:
    fill(disk)
    lock = ProcessLock(disk / "lock")
    lock.acquire("somebody")
    assert lock_holder(disk / "lock") == ""
    lock.release()
    assert lock_holder(disk / "lock") is None
