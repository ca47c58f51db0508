"""Settings, commands and options under a former name: refused, with the new name to use."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab.experiments import ExperimentError
from lab.experiments.changes import checked
from learning.settings import LocalSettings
from operation.cli import app
from operation.config import SettingsError
from server_app.config.run_config import RENAMED_SETTINGS, Settings
from server_app.experiment.experiment_folder import parse
from tests.conftest import TINY

SETTINGS = {
    "fairness": "qfedavg-q",
    "malicious": "krum-malicious",
    "samples": "examples",
    "sealing": "sealed",
    "silo-column": "hospital-column",
    "smallest": "skew-min-examples",
    "smallest-share": "skew-small-fraction",
    "test-share": "test-fraction",
    "trim": "trim-fraction",
}


def test_every_renamed_setting_leads_to_one_that_exists() -> None:
    assert RENAMED_SETTINGS == SETTINGS
    assert set(RENAMED_SETTINGS.values()) <= set(Settings.defaults())
    assert not RENAMED_SETTINGS.keys() & Settings.defaults().keys()


@pytest.mark.parametrize(("old", "new"), SETTINGS.items())
def test_a_settings_former_name_is_refused_in_a_run_config(old: str, new: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{old} was renamed: use {new} \(run config\)$"):
        Settings.from_run_config({**TINY, old: 1}, source="run config")


@pytest.mark.parametrize(("old", "new"), SETTINGS.items())
def test_a_settings_former_name_is_refused_in_a_studys_settings(old: str, new: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{old} was renamed: use {new} \(settings.toml\)$"):
        parse({"input-shape": "4", "classes": 2, old: 1}, hospitals=3)


@pytest.mark.parametrize(("old", "new"), SETTINGS.items())
def test_a_settings_former_name_is_refused_on_the_command_line(
    old: str, new: str, tmp_path: Path
) -> None:
    arguments = ["simulate", "--set", f"{old}=1", "--run-dir", str(tmp_path / "run")]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 2
    assert f"{old} was renamed: use {new} (command line)" in result.stderr
    with pytest.raises((SettingsError, ExperimentError), match=f"{old} was renamed: use {new}"):
        checked({old: 1})


@pytest.mark.parametrize("old", sorted(LocalSettings.renamed))
def test_a_settings_former_name_is_refused_in_a_hospitals_data_section(old: str) -> None:
    with pytest.raises(SettingsError, match=f"^{old} was renamed: use {SETTINGS[old]} "):
        LocalSettings.parse({old: 1}, source="hospital.toml")


COMMANDS = [
    ("simulate --samples 4", "--samples was renamed: use --examples"),
    ("lab run --samples 4", "--samples was renamed: use --examples"),
    ("lab advise --hospitals 4 --samples 4", "--samples was renamed: use --examples"),
    ("coordinator renew", "renew was renamed: use renew-certificate"),
    ("coordinator enrol mercy.json --yes ABCD", "--yes was renamed: use --fingerprint"),
]


@pytest.mark.parametrize(("line", "message"), COMMANDS)
def test_a_command_or_options_former_name_is_refused(line: str, message: str) -> None:
    result = CliRunner().invoke(app, line.split())

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_results_that_are_kept_have_todays_settings() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "results"
    known = set(Settings.defaults())
    for path in sorted(docs.glob("*.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        groups = [results["settings"], results["validation"], *results["variants"].values()]
        for settings in [*groups, *(row["settings"] for row in results["rows"])]:
            assert settings.keys() <= known, path.name
