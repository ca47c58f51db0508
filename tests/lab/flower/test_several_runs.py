"""Several experiments on one start of Flower and Ray."""

import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

from client_app.courier import app as courier
from lab.engine import run as run_in_lab
from lab.flower.in_process import InProcessGrid
from lab.flower.several_runs import RUNS, main
from lab.flower.simulate import simulate_each
from operation.config import SettingsError
from operation.runs.event_file import Event
from server_app.config.run_config import Settings
from tests.conftest import TINY


def settings(**changes: object) -> Settings:
    values = TINY | {"rounds": 4} | {key.replace("_", "-"): value for key, value in changes.items()}
    return Settings.from_run_config(values, source="test")


def test_runs_of_one_simulation_have_the_same_hospitals(tmp_path: Path) -> None:
    for other in (settings(seed=4), settings(hospitals=5), settings(examples=6)):
        with pytest.raises(SettingsError, match="same data, seed and hospitals"):
            simulate_each([settings(), other], [tmp_path / "a", tmp_path / "b"])
    assert list(tmp_path.iterdir()) == []


def test_hospitals_serve_one_experiment_after_the_other(tmp_path: Path) -> None:
    methods = [settings(aggregation_period=2), settings(daisy_period=0, aggregation_period=2)]
    changes = [
        {"daisy-period": one.algorithm.daisy_period, "run-dir": str(tmp_path / str(number))}
        for number, one in enumerate(methods)
    ]
    config = methods[0].as_config() | {RUNS: json.dumps(changes)}
    grid = InProcessGrid(courier, methods[0].algorithm.hospitals, config)
    main(grid, Context(1, 1, {}, RecordDict(), config))
    for number, method in enumerate(methods):
        model = run_in_lab(method).model
        saved = load_file(tmp_path / str(number) / "model.safetensors")
        for name, value in (model.parameters | model.buffers).items():
            np.testing.assert_allclose(saved[name], value, rtol=1e-9)


@pytest.mark.slow
def test_each_run_ends_with_the_model_of_the_lab_s_engine(tmp_path: Path) -> None:
    methods = [settings(aggregation_period=2), settings(daisy_period=0, aggregation_period=2)]
    folders = [tmp_path / "feddc", tmp_path / "fedavg"]
    seen: list[tuple[int, str]] = []

    def on_event(number: int, event: Event) -> None:
        seen.append((number, event["event"]))

    summaries = simulate_each(methods, folders, on_event=on_event)

    assert [summary["hand_overs"] for summary in summaries] == [2, 0]
    assert [number for number, kind in seen if kind == "end"] == [0, 1]
    assert list(tmp_path.rglob("flower.log")) == [folders[0] / "flower.log"]
    for folder, method in zip(folders, methods, strict=True):
        model = run_in_lab(method).model
        saved = load_file(folder / "model.safetensors")
        for name, value in (model.parameters | model.buffers).items():
            np.testing.assert_allclose(saved[name], value, rtol=1e-9)
