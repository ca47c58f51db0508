"""A new experiment begins where another got to, if the model is one of the study's network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from client_app.enrol.enrolment import initialise
from client_app.hospital_folder import HospitalFolder
from operation.config import SettingsError
from protocol.model_bytes import ModelState
from server_app.experiment import first_model
from server_app.experiment.experiment_folder import ExperimentFolder
from server_app.run.evaluator_process import EvaluatorError, EvaluatorProcess
from server_app.study import study_members
from server_app.study.creation import create_study
from server_app.study.study_folder import Study

SETTINGS: dict[str, Any] = {
    "input-shape": "3",
    "classes": 2,
    "model": "mlp",
    "model-options": '{"hidden": [4]}',
}
LIKE = ModelState({"w": np.zeros((2, 3), np.float32)}, {"n": np.zeros((), np.int64)})
GOOD: dict[str, Any] = {"w": np.ones((2, 3), np.float32), "n": np.array(7)}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    study = create_study(
        tmp_path / "study",
        name="hearts",
        address="fl.example.org:8443",
        listen="127.0.0.1:8443",
        internal_port=9092,
    )
    for name in ("Charite", "Mercy", "St Mary"):
        study_members.add(study, initialise(HospitalFolder(tmp_path / name), name, "")[0])
    study_members.write_roster(study)
    return study


@pytest.mark.slow  # seven processes import torch
def test_an_experiment_begins_with_the_model_it_was_given(study: Study, tmp_path: Path) -> None:
    first = ExperimentFolder.create(study, SETTINGS)
    with EvaluatorProcess(first.folder, 3) as evaluator:
        drawn = evaluator.first_model
    changed = {name: array + np.float32(1) for name, array in drawn.parameters.items()}
    save_file(changed, first.folder / first_model.AGGREGATE)

    model = first_model.find(study, first.id)
    second = ExperimentFolder.create(study, SETTINGS, begin_with=model)
    (first.folder / first_model.AGGREGATE).unlink()  # it has its own copy
    with EvaluatorProcess(second.folder, 3) as evaluator:
        begun = evaluator.first_model.parameters
    assert list(begun) == list(drawn.parameters)
    for name, array in changed.items():
        np.testing.assert_array_equal(begun[name], array)

    before = list(study.experiments.iterdir())
    with pytest.raises(SettingsError, match=r"as float32 .*but in the study's network"):
        ExperimentFolder.create(
            study, SETTINGS | {"model-options": '{"hidden": [5]}'}, begin_with=model_of(second)
        )
    with pytest.raises(SettingsError, match="init = own"):
        ExperimentFolder.create(study, SETTINGS | {"init": "own"}, begin_with=model_of(second))
    with pytest.raises(SettingsError, match="none-such"):
        ExperimentFolder.create(study, SETTINGS | {"model": "none-such"})
    assert list(study.experiments.iterdir()) == before


@pytest.mark.slow
@pytest.mark.slow  # two processes import torch
def test_the_evaluator_tells_what_the_schedule_costs(study: Study) -> None:
    private: dict[str, Any] = {
        "privacy-unit": "patient",
        "nominal-patients": 8,
        "batch-size": 0,
        "target-epsilon": 3.0,
        "rounds": 4,
        "daisy-period": 1,
        "aggregation-period": 2,
    }
    experiment = ExperimentFolder.create(study, SETTINGS | private)
    with EvaluatorProcess(experiment.folder, 3) as evaluator:
        assert list(evaluator.epsilon) == [1, 2, 3, 4]
        assert evaluator.epsilon[4] == pytest.approx(3.0, rel=1e-3)


def test_what_the_evaluator_dies_of_is_in_a_file(study: Study) -> None:
    experiment = ExperimentFolder.create(study, SETTINGS)
    (experiment.folder / "settings.json").write_text("[")
    with pytest.raises(EvaluatorError, match=r"ended with code 1; see .*evaluator\.log"):
        EvaluatorProcess(experiment.folder, 3)
    assert "JSONDecodeError" in (experiment.folder / "evaluator.log").read_text()


def model_of(experiment: ExperimentFolder) -> Path:
    return experiment.folder / first_model.GIVEN


def test_what_from_may_name(study: Study, tmp_path: Path) -> None:
    folder = study.experiments / "20260101-000000-abcdef"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text("{}")
    with pytest.raises(SettingsError, match="has no aggregate yet"):
        first_model.find(study, folder.name)
    (folder / first_model.AGGREGATE).write_bytes(b"")
    assert first_model.find(study, folder.name) == folder / first_model.AGGREGATE
    (folder / first_model.FINAL).write_bytes(b"")
    assert first_model.find(study, folder.name) == folder / first_model.FINAL
    assert first_model.find(study, str(folder / first_model.FINAL)) == folder / first_model.FINAL
    for nothing in ("20260101-000000-000000", "..", str(tmp_path / "none.safetensors")):
        with pytest.raises(SettingsError, match="neither an experiment"):
            first_model.find(study, nothing)


def test_a_file_s_model_is_read(tmp_path: Path) -> None:
    save_file(GOOD, tmp_path / "m.safetensors")
    model = first_model.read(tmp_path / "m.safetensors", LIKE)
    np.testing.assert_array_equal(model.parameters["w"], GOOD["w"])
    assert model.buffers["n"] == load_file(tmp_path / "m.safetensors")["n"] == 7


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.pop("n"), "lacks n"),
        (lambda m: m.update(more=m["w"]), "has, unlike the study's network, more"),
        (lambda m: m.update(w=m["w"].T.copy()), r"w as float32 \(3, 2\)"),
        (lambda m: m.update(w=m["w"].astype(np.float64)), "w as float64"),
        (lambda m: m.update(w=m["w"] * np.float32(np.nan)), "not finite"),
    ],
    ids=["lacks", "more", "shape", "type", "nan"],
)
def test_a_model_that_does_not_fit_is_refused(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    arrays = dict(GOOD)
    change(arrays)
    save_file(arrays, tmp_path / "m.safetensors")
    with pytest.raises(SettingsError, match=said):
        first_model.read(tmp_path / "m.safetensors", LIKE)


@pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", b"\xff" * 100])
def test_a_file_that_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(SettingsError, match="is not a safetensors file"):
        first_model.read(tmp_path / "m.safetensors", LIKE)
