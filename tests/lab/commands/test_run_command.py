"""`feddc lab run` and its relatives from the command line to the files."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lab.experiments.own_data import own_data
from operation.cli import main

Feddc = Callable[..., tuple[int, str, str]]
QUICK = "--dataset breast-cancer --hospitals 4 --examples 6 --seeds 1 --workers 1"
FEW = "--set rounds=6 --set aggregation-period=3 --methods feddc,fedavg-b,fedavg-1"


@pytest.fixture
def feddc(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Feddc:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["feddc", "lab", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


def test_own_data_are_compared_with_a_table_results_and_plots(feddc: Feddc, tmp_path: Path) -> None:
    code, out, _ = feddc("run", *QUICK.split(), *FEW.split())
    assert code == 0
    assert "FedDC(1, 3) over FedAvg(1):" in out
    assert "paper" not in out.partition("over")[0]  # it has no figure for own data
    (folder,) = (tmp_path / "runs").iterdir()
    assert {path.name for path in folder.glob("[!.]*")} == {
        "clock.json",
        "communication.png",
        "curves.json",
        "report.html",
        "results.json",
        "rounds.png",
        "sweep.json",
        "trials",
    }
    results = json.loads((folder / "results.json").read_text())
    assert [row["method"] for row in results["rows"]] == ["feddc", "fedavg-1", "fedavg-b"]
    assert all(set(row["candidates"]) == {"0.02", "0.06", "0.2"} for row in results["rows"])
    for public in ("results.json", "report.html"):
        assert str(tmp_path) not in (folder / public).read_text(encoding="utf-8")


def test_images_are_small_on_a_laptop_and_scarce_examples_are_held_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(60):
        path = tmp_path / ("yes" if number % 2 else "no") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = rng.integers(256, size=(40, 40), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    plenty = own_data(f"image-folder:{tmp_path}", 4, 4, {})
    assert plenty.laptop is not None
    assert plenty.full is not None
    assert plenty.laptop.settings["image-size"] == 32
    assert "image-size" not in plenty.full.settings
    assert (plenty.laptop.settings["held-out"], plenty.laptop.validation) == (2, {})

    # 48 images in the pool: none to spare, so that each holds back two of its eight.
    scarce = own_data(f"image-folder:{tmp_path}", 6, 8, {"model": "linear"})
    assert scarce.laptop is not None
    assert scarce.laptop.settings["model"] == "linear"
    assert scarce.laptop.settings["held-out"] == 0
    assert scarce.laptop.validation == {"examples": 6, "held-out": 2}


def test_json_is_one_line(feddc: Feddc) -> None:
    code, out, _ = feddc("run", *QUICK.split(), *FEW.split(), "--json")
    assert code == 0
    (found,) = json.loads(out)
    assert found["experiment"] == "breast-cancer"
    assert {"run_dir", "rows", "gains", "hardware", "seconds"} <= set(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run", "name an experiment"),
        ("run nothing", "no experiment is called 'nothing'"),
        ("run synthetic --setting full", "--setting was renamed: use --preset"),
        ("run samples", "experiment 'samples' was renamed: use 'examples'"),
        ("plan --hospitals 9 --examples 9", "plan was renamed: use bound"),
        ("run synthetic --preset small", "'small' is not one of 'laptop', 'desk', 'full'"),
        ("run synthetic --examples 3", "--hospitals, --examples and --set belong to --dataset"),
        ("run synthetic mnist --run-dir x", "--run-dir is for one experiment at a time"),
        ("run synthetic --dataset digits", "give the names of experiments or --dataset, not both"),
        ("run --dataset digits", "--dataset needs --hospitals and --examples"),
        ("run --dataset nothing:x --hospitals 4 --examples 4", "got 'nothing'"),
        ("run --dataset image-folder:/nowhere --hospitals 4 --examples 4", "/nowhere"),
        ("run --dataset digits --hospitals 400 --examples 40", "lower hospitals"),
        ("run synthetic --methods fedx", "'fedx': choose from feddc"),
        ("run synthetic --methods ,", "--methods is empty: leave it out"),
        (f"run {QUICK} --set model=mnist-cnn", "mnist-cnn"),
        (f'run {QUICK} --set model-options={{"hiden":[4]}}', "hiden"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: str, message: str, feddc: Feddc, tmp_path: Path
) -> None:
    code, out, err = feddc(*arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("feddc: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_the_list_has_every_experiment_with_its_state(
    feddc: Feddc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDDC_DATA", raising=False)
    code, out, _ = feddc("list", "--json")
    assert code == 0
    states = {line["name"]: line["state"] for line in json.loads(out)}
    assert states["synthetic"] == "ready"
    assert states["mnist"].startswith("needs $FEDDC_DATA/mnist/ from the MNIST database")


def test_without_the_data_it_is_said_what_is_missing_and_what_would_do_instead(
    feddc: Feddc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDDC_DATA", str(tmp_path / "empty"))
    code, _, err = feddc("run", "susy")
    assert code == 2
    assert "susy: needs $FEDDC_DATA/susy/ from the UCI repository" in err
    assert "susy-stand-in needs no files" in err
    assert not (tmp_path / "runs").exists()


def test_runs_are_compared_side_by_side(feddc: Feddc, tmp_path: Path) -> None:
    for name, seeds in (("one", "1"), ("two", "2")):
        options = [*QUICK.replace("--seeds 1", f"--seeds {seeds}").split(), *FEW.split()]
        assert feddc("run", *options, "--run-dir", f"runs/{name}")[0] == 0
    code, out, _ = feddc("compare", "runs/one", "runs/two")
    assert code == 0
    assert "laptop, 1 seed " in out
    assert "laptop, 2 seeds" in out
    assert "FedAvg(3)" in out
    assert feddc("compare", "runs")[2].startswith("feddc: runs is not a run folder")


def test_runs_of_one_name_in_two_places_are_two_columns(feddc: Feddc, tmp_path: Path) -> None:
    for place, examples in (("a", "6"), ("b", "5")):
        options = [*QUICK.replace("--examples 6", f"--examples {examples}").split(), *FEW.split()]
        assert feddc("run", *options, "--run-dir", f"{place}/run")[0] == 0
    _, out, _ = feddc("compare", "a/run", "b/run", "--json")
    found = json.loads(out)
    assert [found[name]["settings"]["examples"] for name in ("a/run", "b/run")] == [6, 5]


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_damaged_results_are_named_in_one_line(text: str, feddc: Feddc, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "sweep.json").write_text("{}")
    (run / "results.json").write_text(text)
    code, out, err = feddc("compare", "run")
    assert (code, out) == (2, "")
    assert err.startswith("feddc: run/results.json is damaged: ")
    assert err.count("\n") == 1


def test_results_of_another_version_are_named_in_one_line(feddc: Feddc, tmp_path: Path) -> None:
    assert feddc("run", *QUICK.split(), *FEW.split(), "--run-dir", "run")[0] == 0
    path = tmp_path / "run" / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": "feddc-results/0"}))
    code, out, err = feddc("compare", "run")
    assert (code, out) == (2, "")
    assert "'feddc-results/0' of another version" in err
    assert err.count("\n") == 1


def test_a_training_of_another_version_is_named_in_one_line(feddc: Feddc, tmp_path: Path) -> None:
    command = ["run", *QUICK.split(), *FEW.split(), "--run-dir", "run"]
    assert feddc(*command)[0] == 0
    one, *_ = sorted((tmp_path / "run" / "trials").glob("*.json"))
    for text, said in (("{", "is damaged: "), ("{}", "is damaged, or of another version: ")):
        one.write_text(text)
        code, out, err = feddc(*command)
        assert (code, out) == (2, "")
        assert f"{one.name} {said}" in err
        assert err.count("\n") == 1


def test_figures_that_cannot_be_drawn_are_one_line(feddc: Feddc, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        code, _, err = feddc("bound", *["--hospitals", "9", "--examples", "9", "--figures"], place)
        assert code == 2
        assert f"--figures {place}: " in err
        assert err.count("\n") == 1
