"""Training on all data together: stopped at any slice it ends where it would have without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.engine import run_state
from lab.engine.device import chosen_device
from lab.sweep import central, stopwatch
from lab.sweep.record import Record
from lab.sweep.train_trial import train
from lab.sweep.trial import Trial
from operation.config import SettingsError
from server_app.config.run_config import Settings
from tests.lab.conftest import plan


def central_trial(**settings: Any) -> Trial:
    ours = plan(
        settings={"momentum": 0.9, **settings},
        laptop={"central": {"steps": 200, "batch-size": 6}},
    )
    return ours.final(ours.cells[-1], 0, 0.1)


def figures(record: Record | None) -> Record:
    assert record is not None
    return replace(record, seconds=0.0)


@pytest.mark.parametrize("asked", [1, 2, 3, 4, 5])
def test_stopped_after_any_slice_it_comes_to_the_same_figures(asked: int, tmp_path: Path) -> None:
    trial, path = central_trial(), tmp_path / "state.safetensors"
    seen: list[int] = []
    whole = train(trial, on_progress=seen.append)
    assert seen == [50, 66, 116, 133, 183, 200]  # three points, slices of fifty between
    times = iter([False] * (asked - 1) + [True])
    assert train(trial, checkpoint=path, stop=lambda: next(times)) is None
    assert path.is_file()
    rest: list[int] = []
    assert figures(train(trial, checkpoint=path, on_progress=rest.append)) == figures(whole)
    assert rest == seen[asked:]


def test_it_looks_often_whether_to_stop_and_keeps_its_state_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.sweep.central_checkpoint._SECONDS_BETWEEN", -1.0)
    path = tmp_path / "state.safetensors"
    there: list[bool] = []
    train(central_trial(), checkpoint=path, on_progress=lambda _: there.append(path.exists()))
    assert there == [False] + [True] * 5


def test_another_trainings_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    assert train(central_trial(), checkpoint=path, stop=lambda: True) is None
    with pytest.raises(SettingsError, match="the checkpoint of another training: delete it"):
        train(central_trial(momentum=0.5), checkpoint=path)
    path.write_bytes(b"no such thing")
    with pytest.raises(SettingsError, match="is not a readable checkpoint"):
        train(central_trial(), checkpoint=path)


@pytest.mark.parametrize("method", [0, -1])
def test_a_trainings_time_counts_on_after_a_stop(
    method: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(stopwatch.Stopwatch, "clock", staticmethod(lambda: now[0]))
    ours, path = plan(), tmp_path / "state.safetensors"
    trial = ours.final(ours.cells[method], 0, 0.1)
    if trial.central:
        trial = central_trial()

    def pass_time(_: int) -> None:
        now[0] += 5

    stopped = train(trial, checkpoint=path, on_progress=pass_time, stop=lambda: True)
    assert stopped is None
    spent = now[0] - 100
    assert spent > 0
    now[0] += 1000
    resumed = now[0]
    record = train(trial, checkpoint=path, on_progress=pass_time)
    assert record is not None
    assert record.seconds == pytest.approx(spent + now[0] - resumed)


@pytest.mark.parametrize(
    ("there", "named", "used"),
    [(True, None, "cuda"), (True, "cpu", "cpu"), (False, None, "cpu"), (True, "cuda", "cuda")],
)
def test_the_device_that_is_named_is_used_else_the_gpu(
    there: bool, named: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    values = {"device": named} if named else {}
    local = Settings.from_run_config(values, source="test").local
    assert chosen_device(local).type == used
    assert run_state.chosen_device is central.chosen_device is chosen_device
