"""Durable files: what a reader, another user and a power cut find."""

import errno
import os
from pathlib import Path

import pytest

from operation import files
from operation.disk_space import DiskFull


class Disk:
    """Records, in order, what was synced, renamed and removed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        sync, rename = os.fsync, os.replace

        def record_sync(descriptor: int) -> None:
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            self.calls.append(("sync", name))
            sync(descriptor)

        def record_rename(source: Path, target: Path) -> None:
            self.calls.append(("rename", Path(target).name))
            rename(source, target)

        monkeypatch.setattr(os, "fsync", record_sync)
        monkeypatch.setattr(os, "replace", record_rename)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_replaced_file_is_synced_before_its_name_and_its_folder_after(
    tmp_path: Path, disk: Disk
) -> None:
    files.replace(tmp_path / "file", b"new")
    with files.replacing(tmp_path / "other") as draft:
        draft.write_text("new")

    for name in ("file", "other"):
        expected = [("sync", f".{name}.new"), ("rename", name), ("sync", tmp_path.name)]
        assert [disk.calls.pop(0) for _ in range(3)] == expected
    assert disk.calls == []


def test_what_may_be_lost_is_not_waited_for(tmp_path: Path, disk: Disk) -> None:
    with files.replacing(tmp_path / "checkpoint", durable=False) as draft:
        draft.write_text("new")

    assert disk.calls == [("rename", "checkpoint")]


def test_a_writer_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write_half() -> None:
        with files.replacing(path) as draft:
            draft.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_draft_of_an_interrupted_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".file.new").write_text("half")

    files.replace(tmp_path / "file", b"whole")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("mask", [0, 0o077])
def test_permissions_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        files.write_new(tmp_path / "secret", b"")
        files.replace(tmp_path / "public", b"")
        files.make_folder(tmp_path / "folder", 0o711)
    finally:
        os.umask(before)

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"secret": 0o600, "public": 0o644, "folder": 0o711}


def test_a_new_file_never_overwrites_one(tmp_path: Path) -> None:
    files.write_new(tmp_path / "secret", b"first")

    with pytest.raises(FileExistsError):
        files.write_new(tmp_path / "secret", b"second")

    assert (tmp_path / "secret").read_bytes() == b"first"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604, 0o602])
def test_a_file_is_private_if_nobody_else_has_any_right(tmp_path: Path, mode: int) -> None:
    files.write_new(tmp_path / "file", b"x", mode=mode)

    assert files.is_private(tmp_path / "file") == (mode in (0o600, 0o400))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_private(tmp_path: Path) -> None:
    files.write_new(tmp_path / "file", b"x")
    os.chown(tmp_path / "file", 54321, 54321)

    assert not files.is_private(tmp_path / "file")


def test_a_file_that_does_not_fit_is_named_with_its_size_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.replace(tmp_path / "model", b"before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull) as raised:
        files.replace(tmp_path / "model", bytes(2_500_000))
    assert str(raised.value) == f"no space left for {tmp_path / 'model'}: 2.5 MB are needed"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model").read_bytes() == b"before"
