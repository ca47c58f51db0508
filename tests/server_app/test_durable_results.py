"""A run's results are on the disk before anything that could restore them is deleted."""

import os
from pathlib import Path

import pytest

from server_app.config.run_config import Settings
from server_app.run.recorder import Recorder
from server_app.run.simulated_run import run
from tests.conftest import TINY, RecordingGrid
from tests.server_app.run_files import FILES


def test_every_result_is_synced_when_the_recorder_has_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The deployed run deletes its journal as soon as `completed` has returned.
    folder = tmp_path / "run"
    synced: dict[int, int] = {}
    at_the_end: dict[str, tuple[int | None, int]] = {}
    renamed_since: list[str] = []
    sync, rename, completed = os.fsync, os.replace, Recorder.completed

    def record_sync(descriptor: int) -> None:
        sync(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_size
        if status.st_ino == folder.stat().st_ino:
            renamed_since.clear()

    def record_rename(source: Path, target: Path) -> None:
        rename(source, target)
        renamed_since.append(Path(target).name)

    def look_at_the_disk(self: Recorder, *arguments: object) -> object:
        summary = completed(self, *arguments)  # type: ignore[arg-type]
        for path in folder.iterdir():
            status = path.stat()
            at_the_end[path.name] = (synced.get(status.st_ino), status.st_size)
        return summary

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_rename)
    monkeypatch.setattr(Recorder, "completed", look_at_the_disk)
    settings = Settings.from_run_config(TINY | {"run-dir": str(folder)}, source="test")

    run(RecordingGrid(settings), settings)

    assert at_the_end.keys() == FILES
    for name, (size_when_synced, size) in at_the_end.items():
        assert size_when_synced == size, f"{name} was not synced after its last change"
    assert renamed_since == []
