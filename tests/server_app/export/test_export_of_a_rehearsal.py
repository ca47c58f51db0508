"""The card of a completed rehearsal has the figures of its own test data."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from client_app.enrol.enrolment import initialise
from client_app.hospital_folder import HospitalFolder
from learning.data import Examples
from learning.evaluation import HeldOutEvaluation, evaluate_predictions
from learning.local_data import load_dataset
from learning.settings import LocalSettings
from learning.trainer import Network, TaskSpec
from operation.cli import app
from protocol.model_bytes import ModelState
from protocol.model_file import to_model_file
from server_app.experiment.experiment_folder import ExperimentFolder
from server_app.run.evaluator_process import EvaluatorProcess
from server_app.study import study_members
from server_app.study.creation import create_study

SEED = 7
TASK = {"test-data": "breast-cancer", "model": "linear", "rounds": 7}


@pytest.mark.slow  # three processes import torch
def test_the_figures_are_of_the_test_data_that_the_seed_chose(tmp_path: Path) -> None:
    study = create_study(
        tmp_path / "study", name="hearts", address="h:1", listen="", internal_port=28000
    )
    for name in ("Charite", "Mercy", "St Mary"):
        study_members.add(study, initialise(HospitalFolder(tmp_path / name), name, "")[0])
    study_members.write_roster(study)
    experiment = ExperimentFolder.create(study, TASK, seed=SEED)

    with EvaluatorProcess(experiment.folder, 3) as evaluator:
        drawn = evaluator.first_model
        rng = np.random.default_rng(0)
        final = ModelState(
            {name: rng.normal(size=a.shape).astype(a.dtype) for name, a in drawn.parameters.items()}
        )
        evaluator.save_figures(final, experiment.figures_file)
    # As at the end of a run: the seed is gone when somebody exports.
    (experiment.folder / "model.safetensors").write_bytes(to_model_file(final))
    (experiment.folder / "summary.json").write_text("{}")
    experiment.delete_routes()
    arguments = ["coordinator", "export", "--study", str(study.folder), "--without-onnx"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output

    card = (experiment.folder / "export" / "README.md").read_text()
    total = len(_test_set(SEED).labels)
    right, elsewhere = (_right(experiment, final, seed) for seed in (SEED, 0))
    assert right != elsewhere  # else the test would show nothing
    assert f"value: {right / total:.4f}" in card
    assert f"value: {elsewhere / total:.4f}" not in card


def test_saved_figures_are_read_back_as_they_were() -> None:
    chances = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    found = evaluate_predictions(chances, np.array([0, 1, 1]), ("healthy", "ill"))
    assert HeldOutEvaluation.from_dict(json.loads(json.dumps(found.as_dict()))) == found
    with pytest.raises(ValueError, match="confusion"):
        HeldOutEvaluation.from_dict({"classes": ["a"]})


def _test_set(seed: int) -> Examples:
    local = LocalSettings.parse({"dataset": "breast-cancer"}, source="test")
    return load_dataset(local, seed).test


def _right(experiment: ExperimentFolder, model: ModelState, seed: int) -> int:
    test = _test_set(seed)
    settings, _ = experiment.settings(3)
    network = Network(settings.training, TaskSpec((30,), 2), seed=0)
    network.load(model.parameters, model.buffers)
    return int((network.probabilities(test.features).argmax(axis=1) == test.labels).sum())
