"""The shell completes commands, choices, experiments, settings, runs and members."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from click.shell_completion import ShellComplete
from typer.testing import CliRunner

from lab.experiments import (
    ExperimentError,
    PresetName,
    ablation_names,
    experiment_names,
    load_experiment,
    methods_of,
)
from operation.cli import app
from server_app.config.run_config import Settings
from tests.commands.walk import root
from tests.federation.federation import FEDDC, environment
from tests.federation.screens import HOSPITALS


def completed(line: str) -> list[str]:
    """Return what a shell would offer for the last word of a line, which may be empty."""
    *given, incomplete = line.split(" ")
    shell = ShellComplete(root(), {}, "feddc", "_FEDDC_COMPLETE")
    return [item.value for item in shell.get_completions(given, incomplete)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("coord", ["coordinator"]),
        ("hospital re", ["renew-transport-key", "reject", "reset"]),
        ("lab run --pre", ["--preset"]),
        ("lab run --preset ", ["laptop", "desk", "full"]),
        ("lab export x --to ", ["csv", "tensorboard"]),
        ("simulate --permutation ", ["uniform", "derangement", "coverage"]),
        ("simulate --set schedule=", ["schedule=periodic", "schedule=random"]),
        ("simulate --set sealed=", ["sealed=true", "sealed=false"]),
        ("coordinator run --set sched", ["schedule="]),
        ("coordinator run --set nothing=", []),
        ("coordinator up --only ", ["superlink", "proxy"]),
        ("lab run syn", ["synthetic"]),
        ("simulate --model mn", ["mnist-cnn"]),
        ("simulate --dataset br", ["brain-mri", "breast-cancer"]),
        ("simulate --set model=cnn", ["model=cnn-3d"]),
        ("coordinator run --set dataset=image", ["dataset=image-folder"]),
        ("lab run --dataset med", ["medical-folder"]),
        ("lab run --methods feda", ["fedavg-1", "fedavg-b", "fedadagrad", "fedadam"]),
        ("lab run --methods feddc,fedp", ["feddc,fedprox"]),
        ("lab run --methods fedprox,fedp", []),
    ],
)
def test_the_shell_completes(line: str, expected: list[str]) -> None:
    assert completed(line) == expected


def test_models_and_data_sets_are_those_of_the_registries() -> None:
    from learning import data, models

    for command in ("simulate", "lab run"):
        assert completed(f"{command} --dataset ") == list(data.names())
    assert completed("simulate --model ") == list(models.names())
    assert completed("lab run --set model=") == [f"model={name}" for name in models.names()]


@pytest.mark.parametrize("preset", get_args(PresetName))
@pytest.mark.parametrize("name", ["synthetic", "privacy", "init"])
def test_methods_are_those_of_the_experiment(name: str, preset: PresetName) -> None:
    """One experiment adds methods in one preset, one names its own, one is without a preset."""
    experiment = load_experiment(name)
    try:
        expected = [method.name for method in methods_of(experiment, preset, {})]
    except ExperimentError:
        return  # it has no such preset
    assert completed(f"lab run {name} --preset {preset} --methods ") == expected


def test_completion_does_not_wait_for_pytorch() -> None:
    lines = ["simulate --model ", "simulate --dataset ", "lab run synthetic --methods ", "lab run "]
    probe = (
        "import sys\n"
        "from click.shell_completion import ShellComplete\n"
        "import typer\n"
        "from operation.cli import app\n"
        f"for line in {lines!r}:\n"
        "    *given, last = line.split(' ')\n"
        "    shell = ShellComplete(typer.main.get_command(app), {}, 'feddc', '_FEDDC_COMPLETE')\n"
        "    assert shell.get_completions(given, last), line\n"
        "print([name for name in ('torch', 'sklearn', 'flwr') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_all_experiments_and_all_settings_are_offered() -> None:
    assert completed("lab run ") == sorted((*experiment_names(), *ablation_names()))
    assert completed("lab list ") == completed("lab run ")
    for command in ("simulate", "coordinator run", "lab run"):
        assert completed(f"{command} --set ") == [f"{key}=" for key in Settings.defaults()]


def test_the_presets_are_those_of_the_lab() -> None:
    assert set(completed("lab run --preset ")) == set(get_args(PresetName))


def test_experiments_of_the_named_study_are_offered_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for study, name in (("study", "20260101-a"), ("study", "20260102-b"), ("other", "20260103-c")):
        (tmp_path / study / "experiments" / name).mkdir(parents=True)
    for command in ("follow", "resume", "stop", "export"):
        assert completed(f"coordinator {command} ") == ["20260102-b", "20260101-a"]
        assert completed(f"coordinator {command} --study other ") == ["20260103-c"]
    assert completed("coordinator run --from ") == ["20260102-b", "20260101-a"]
    monkeypatch.setenv("FEDDC_STUDY", "other")
    assert completed("coordinator follow ") == ["20260103-c"]


def test_final_models_of_the_named_hospital_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "20260101-a").mkdir(parents=True)
    monkeypatch.setenv("FEDDC_HOSPITAL", str(tmp_path))
    assert completed("hospital predict ") == ["20260101-a"]
    assert completed("hospital evaluate ") == ["20260101-a"]


def test_members_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> None:
        done = CliRunner().invoke(app, words, input="y\n", catch_exceptions=False)
        assert done.exit_code == 0, done.output

    run("coordinator", "init", "--name", "heart", "--address", "localhost:8443")
    for name in HOSPITALS:
        run("hospital", "init", "--name", name, "--folder", name)
        run("coordinator", "enrol", f"{name}/{name}.hospital.json")
    assert completed("coordinator remove ") == sorted(HOSPITALS)


@pytest.mark.parametrize(
    "line",
    ["coordinator remove ", "coordinator follow ", "hospital approve ", "hospital predict "],
)
def test_where_there_is_nothing_nothing_is_offered(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completed(line) == []


def test_bash_gets_its_answer_from_the_command_itself() -> None:
    done = subprocess.run(
        [*FEDDC],
        env=environment()
        | {
            "_FEDDC_COMPLETE": "complete_bash",
            "COMP_WORDS": "feddc lab run cifar10-n",
            "COMP_CWORD": "3",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["cifar10-non-iid"], done.stderr
