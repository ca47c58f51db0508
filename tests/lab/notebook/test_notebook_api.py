"""FedDC from a notebook: the same figures as the run's files, quietly."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import feddc
from lab.notebook.progress_line import progress_line
from tests.conftest import TINY

SMALL = {key.replace("-", "_"): value for key, value in TINY.items()} | {"rounds": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return feddc.simulate(**SMALL, run_dir=tmp_path_factory.mktemp("run") / "one", progress=False)


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_the_figures_are_those_of_the_run_s_files(run: Any) -> None:
    assert run.test_accuracy == run.summary["test_accuracy"]
    rows = {(row["leg"], row["hospital"], row["metric"]): row for row in run.rows()}
    for event in events(run.path, "hospital"):
        assert rows[event["leg"], event["hospital"], "loss"]["value"] == event["loss"]
    for event in events(run.path, "evaluation"):
        row = rows[event["leg"], "", "test_accuracy"]
        assert (row["value"], row["round"]) == (event["test_accuracy"], event["round"] + 1)


def test_figures_of_a_secure_sum_are_rows_without_a_hospital(tmp_path: Path) -> None:
    leg = {"event": "leg", "leg": 2, "ending": "aggregation", "last_round": 3, "loss": 0.5}
    held_out = {"held_out_loss": 0.75, "held_out_accuracy": 0.625}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(leg | held_out) + "\n")
    rows = feddc.open_run(tmp_path).rows()
    assert {row["metric"]: row["value"] for row in rows} == {"loss": 0.5} | held_out
    assert {(row["round"], row["hospital"]) for row in rows} == {(4, "")}


def test_a_frame_is_tidy(run: Any) -> None:
    pytest.importorskip("pandas")
    frame = run.frame()
    assert list(frame.columns) == ["leg", "round", "hospital", "metric", "value"]
    assert len(frame) == len(run.rows())
    assert not frame.duplicated(["leg", "hospital", "metric"]).any()


def test_it_shows_as_a_table(run: Any) -> None:
    assert "test accuracy" in repr(run)
    assert "<th style='text-align:left'>test accuracy</th>" in run._repr_html_()


def test_the_plot_and_the_chain_map_show_the_run(run: Any) -> None:
    (axes,) = run.plot().axes
    tests = events(run.path, "evaluation")
    assert axes.lines[0].get_ydata() == pytest.approx([100 * e["test_accuracy"] for e in tests])
    assert run.plot()._repr_png_().startswith(b"\x89PNG")  # a notebook shows it
    (axes,) = run.chain_map().axes
    lines = [line for line in axes.lines if len(line.get_xdata()) == 4]
    assert len(lines) == 2 * 6  # six chains in each of two periods of four legs
    assert {place for line in lines for place in line.get_ydata()} == set(range(6))


def test_an_opened_run_is_the_same(run: Any) -> None:
    again = feddc.open_run(run.path)
    assert again.rows() == run.rows()
    with pytest.raises(FileNotFoundError, match=r"no metrics\.jsonl"):
        feddc.open_run(run.path.parent)


def test_nothing_is_logged_and_settings_are_checked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    feddc.simulate(**SMALL | {"rounds": 4}, run_dir=tmp_path / "run", progress=False)
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ValueError, match="colour is not a setting"):
        feddc.simulate(colour="blue", run_dir=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def separable() -> tuple[np.ndarray, np.ndarray]:
    features = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    return features, np.where(features[:, 0] > 0, "sick", "healthy")


def test_an_own_network_and_own_arrays_are_trained(tmp_path: Path) -> None:
    options = {"hospitals": 4, "examples": 12, "rounds": 20, "learning_rate": 0.5}
    network = torch.nn.Linear(5, 2)
    before = network.weight.detach().clone()
    features, labels = separable()
    arrays = feddc.simulate(
        model=network, dataset=(features, labels), **options, run_dir=tmp_path / "a", progress=False
    )
    assert arrays.test_accuracy > 0.85
    assert torch.equal(network.weight, before)  # it is a template
    numbers = torch.tensor((labels == "sick").astype(np.int64))
    torch_set = TensorDataset(torch.tensor(features), numbers)
    same = feddc.simulate(
        model=lambda: torch.nn.Linear(5, 2),
        dataset=torch_set,
        **options,
        run_dir=tmp_path / "b",
        progress=False,
    )
    assert same.test_accuracy == arrays.test_accuracy


def test_progress_is_one_line_that_is_erased(capsys: pytest.CaptureFixture[str]) -> None:
    asked = threading.Event()

    def text() -> str:
        asked.set()
        return "leg 3/8"

    with progress_line(text, quiet_seconds=0):
        assert asked.wait(60)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("\rleg 3/8")
    assert shown.err.endswith("\r       \r")

    with progress_line(text, shown=False, quiet_seconds=0):
        pass
    with progress_line(text):  # over before two seconds have passed
        pass
    assert capsys.readouterr().err == ""


def test_a_preset_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    for preset, problem in (("huge", "laptop, desk or full"), ("desk", "has no desk preset")):
        with pytest.raises(ValueError, match=problem):
            feddc.lab.run("permutation", preset=preset, run_dir=tmp_path / preset)
