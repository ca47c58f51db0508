"""The folder of a run: never another run's, and refused in one line where it cannot be used."""

from pathlib import Path
from typing import Any

import pytest

from operation.config import SettingsError
from server_app.config.run_config import Settings
from server_app.run.run_dir import new_run_dir
from tests.conftest import TINY
from tests.server_app.run_files import FILES


def settings_for(folder: Path | str) -> Settings:
    return Settings.from_run_config(TINY | {"run-dir": str(folder)}, source="test")


def test_a_run_never_writes_into_another_runs_folder(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny(rounds=2, aggregation_period=2)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}

    with pytest.raises(SettingsError, match=r"run-dir .*run already holds a run: choose another$"):
        run_tiny(rounds=2, aggregation_period=2)

    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("name", sorted(FILES))
def test_any_one_result_is_a_run(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")

    with pytest.raises(SettingsError, match="already holds a run"):
        new_run_dir(settings_for(tmp_path))


def test_a_folder_with_other_files_can_be_used(tmp_path: Path) -> None:
    # `feddc simulate` keeps Flower's log there before the ServerApp begins.
    (tmp_path / "flower.log").write_text("starting")

    assert new_run_dir(settings_for(tmp_path)) == tmp_path


@pytest.mark.parametrize("below", ["file", "file/run", "file/a/b"])
def test_a_folder_that_cannot_be_made_is_refused(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SettingsError, match=r"run-dir .* cannot be created: .*file is a file"):
        new_run_dir(settings_for(tmp_path / below))


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_a_name_that_no_folder_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"run-dir .* cannot be used"):
        new_run_dir(settings_for(tmp_path / name))


def test_a_folder_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Permissions do not bind root, who may run this test.
    monkeypatch.setattr("os.access", lambda path, mode: False)

    with pytest.raises(SettingsError, match="cannot be written: no permission"):
        new_run_dir(settings_for(tmp_path / "run"))


def test_without_a_name_every_run_has_a_folder_of_its_own() -> None:
    folders = {new_run_dir(settings_for("")) for _ in range(20)}

    assert len(folders) == 20
    assert {folder.parent for folder in folders} == {Path("runs")}


def test_the_users_home_is_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert new_run_dir(settings_for("~/runs/first")) == tmp_path / "runs" / "first"
