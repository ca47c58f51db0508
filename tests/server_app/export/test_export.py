"""`feddc coordinator export`: what is written, and what must never be in it."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import Result
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from operation.cli import app
from protocol.codebook import Codebook
from protocol.sealing.keys import Identity
from protocol.study.roster import Member, Roster
from server_app.config.noise_target import noise_for_target
from server_app.config.run_config import Settings
from server_app.study.creation import create_study
from server_app.study.study_folder import Study
from tests.commands.in_terminal import assert_shown_to_people_only

SEED = "5eed" * 16
HOSPITALS = ("Charite", "Mercy", "St Mary")
CODEBOOK = """
classes = ["healthy", "diseased"]
[[columns]]
kind = "number"
name = "age"
range = [0, 120]
centre = 60
scale = 15
"""


def feddc(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["coordinator", *map(str, arguments)])


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A study with a finished experiment of a linear model on two features."""
    made = create_study(
        tmp_path / "study", name="hearts", address="h:1", listen="", internal_port=28000
    )
    folder = made.experiments / "e1"
    folder.mkdir()
    settings = {"model": "linear", "input-shape": "2", "classes": 2, "rounds": 7}
    (folder / "settings.json").write_text(json.dumps(settings))
    secrets: dict[str, Any] = {"route-seed": SEED, "training-seed": SEED, "rehearsal": None}
    (folder / "secrets.json").write_text(json.dumps(secrets))
    members = [Member(name, Identity.generate().public) for name in HOSPITALS]
    coordinator = made.identity()
    roster = Roster.make("hearts", 1, coordinator.public, members)
    (folder / "roster").write_bytes(roster.signed(coordinator))
    events = [{"event": "hospital", "hospital": name, "accuracy": 0.4321} for name in HOSPITALS]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, events)))
    (folder / "summary.json").write_text("{}")
    chosen = TrainingSettings.parse({"model": "linear"}, source="test")
    parameters, buffers = Network(chosen, TaskSpec((2,), 2), seed=9).arrays()
    save_file(parameters | buffers, folder / "model.safetensors")
    return made


def agree_on_codebook(study: Study) -> None:
    """Let the experiment have begun with the codebook."""
    signed = Codebook.from_toml(CODEBOOK).signed(study.identity())
    (study.experiments / "e1" / "codebook").write_bytes(signed)


def export(study: Study, *options: object) -> Result:
    return feddc("export", "e1", "--study", study.folder, "--without-onnx", *options)


def card(study: Study) -> str:
    return (study.experiments / "e1" / "export" / "README.md").read_text()


def test_the_card_has_a_yaml_head_and_marks_what_only_the_study_can_say(study: Study) -> None:
    done = export(study)
    assert done.exit_code == 0, done.output
    text = card(study)
    head = yaml.safe_load(text.split("---")[1])
    assert head["pipeline_tag"] == "tabular-classification"
    assert "license" not in head
    section = text.split("### Intended use and workflow")[1].split("###")[0]
    assert "**Missing:** only the study can say this; set `card-intended-use`" in section
    assert f"{text.count('**Missing:**')} entries of the model card are missing" in done.stderr


def test_a_text_in_settings_toml_takes_the_mark_s_place(study: Study) -> None:
    lines = study.settings_file.read_text()
    for key, text in (("card-intended-use", "second reading"), ("card-licence", "CC-BY-4.0")):
        assert f'{key} = ""' in lines
        lines = lines.replace(f'{key} = ""', f'{key} = "{text}"')
    study.settings_file.write_text(lines)
    export(study)
    text = card(study)
    assert "### Intended use and workflow\n\nsecond reading\n" in text
    assert yaml.safe_load(text.split("---")[1])["license"] == "cc-by-4.0"


def test_nothing_of_one_hospital_no_route_and_no_seed_is_exported(study: Study) -> None:
    agree_on_codebook(study)
    assert export(study).exit_code == 0
    folder = study.experiments / "e1" / "export"
    for path in folder.iterdir():
        content = path.read_bytes()
        for secret in (*HOSPITALS, SEED, "0.4321", "route"):
            assert secret.encode() not in content, (path, secret)
        assert bytes.fromhex(SEED) not in content


def test_classes_and_codebook_are_those_of_the_study(study: Study) -> None:
    agree_on_codebook(study)
    assert export(study).exit_code == 0
    folder = study.experiments / "e1" / "export"
    assert json.loads((folder / "codebook.json").read_text())["classes"] == ["healthy", "diseased"]
    assert "in this order: healthy, diseased" in card(study)
    for name in Codebook.from_toml(CODEBOOK).features:
        assert f"`{name}`" in card(study)


def test_the_card_states_epsilon_of_the_noise_that_was_computed_for_a_target(study: Study) -> None:
    file = study.experiments / "e1" / "settings.json"
    private = {"privacy-unit": "patient", "nominal-patients": 50, "batch-size": 0}
    config = json.loads(file.read_text()) | private | {"target-epsilon": 2.0}
    settings = Settings.from_run_config(_without_task(config), source="test")
    file.write_text(json.dumps(config | noise_for_target(settings)))
    assert export(study).exit_code == 0
    assert "ε = 2 (δ = 1e-05) for each patient of a hospital" in card(study)


def _without_task(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in config.keys() - {"input-shape", "classes"}}


@pytest.mark.parametrize(("hospitals", "shown"), [(2, False), (3, True)])
def test_only_totals_over_several_hospitals_are_in_the_card(
    study: Study, hospitals: int, shown: bool
) -> None:
    total = {"hospitals": hospitals, "examples": 40, "accuracy": 0.75, "balanced_accuracy": 0.7}
    summary = {"held_out": total | {"loss": 0.5}, "mean_held_out_accuracy": 0.4321}
    (study.experiments / "e1" / "summary.json").write_text(json.dumps(summary))
    assert export(study).exit_code == 0
    # 30 of 40, by Wilson's formula.
    line = "accuracy 0.750 (95 % interval 0.598 to 0.858), balanced accuracy 0.700"
    assert (line in card(study)) == shown
    assert "0.4321" not in card(study)


def test_pytorch_reads_the_exported_model(study: Study) -> None:
    export(study)
    folder = study.experiments / "e1"
    before, after = (
        load_file(f)
        for f in (folder / "model.safetensors", folder / "export" / "model.safetensors")
    )
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])


def test_an_export_shows_what_it_does(study: Study) -> None:
    command = ("export", "e1", "--study", study.folder, "--without-onnx")
    assert_shown_to_people_only("exporting e1", "coordinator", *command)


def test_an_unfinished_experiment_is_refused(study: Study) -> None:
    (study.experiments / "e1" / "summary.json").unlink()
    done = export(study)
    assert done.exit_code == 2
    assert "not complete: continue it with `feddc coordinator resume e1`" in done.stderr


def test_a_full_disk_is_named_and_leaves_the_experiment_as_it_was(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {p.name for p in (study.experiments / "e1").iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = export(study)
    assert done.exit_code == 2
    assert "no space left for" in done.stderr
    assert "B are needed; free some space there" in done.stderr
    assert {p.name for p in (study.experiments / "e1").iterdir()} == before | {"export"}
    assert not list((study.experiments / "e1" / "export").iterdir())
    assert export(study).exit_code == 0


@pytest.mark.slow
def test_the_onnx_file_names_its_classes_and_codebook(study: Study) -> None:
    onnx = pytest.importorskip("onnx")
    agree_on_codebook(study)
    done = feddc("export", "--study", study.folder, "--json")
    assert done.exit_code == 0, done.output
    written = {Path(name).name: Path(name) for name in json.loads(done.stdout)["files"]}
    metadata = {e.key: e.value for e in onnx.load(written["model.onnx"]).metadata_props}
    assert json.loads(metadata["classes"]) == ["healthy", "diseased"]
    assert json.loads(metadata["codebook"])["columns"][0]["name"] == "age"
    assert "model.onnx" in written["README.md"].read_text()
