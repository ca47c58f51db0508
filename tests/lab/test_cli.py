"""The `feddc` command: what it accepts, what it says, and that it starts nothing in vain."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import lab.flower.simulate
from lab.commands.simulate_command import JSON_KEYS, SignalReceived, merged
from lab.flower.simulate import SimulationFailed
from operation.cli import main
from server_app.config.run_config import Settings
from server_app.experiment.progress import closing_table, shown
from tests.fake_clock import FakeClock

Feddc = Callable[..., tuple[int, str, str]]
SUMMARY: dict[str, Any] = {
    "run_dir": "/somewhere/run",
    "test_accuracy": 0.8125,
    "test_balanced_accuracy": 0.5,
    "mean_client_accuracy": None,
    "mean_held_out_accuracy": 0.75,
    "held_out": None,
    "legs": 20,
    "hand_overs": 16,
    "aggregations": 4,
    "bytes_up": 4_200_000,
    "bytes_down": 999,
    "sealed": True,
    "seconds": 12.34,
    "missing": {"Cleveland": 7, "St [b]Mary": 1, "Basel": 7},
    "lost_chains": 2,
    "missed_rounds": 11,
}


@pytest.fixture
def feddc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Feddc:
    """Run the command in this process; Flower must not be started."""

    def never(**_: object) -> None:
        raise AssertionError("Flower was started")

    monkeypatch.setattr(lab.flower.simulate, "run_app", never)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["feddc", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks of `simulate`, which does nothing here."""
    asked: dict[str, Any] = {}

    def simulate(settings: Settings, **rest: Any) -> dict[str, Any]:
        asked.update(settings=settings, **rest)
        rest["run_dir"].mkdir(parents=True)
        (rest["run_dir"] / "summary.json").write_text("{}")
        return SUMMARY

    monkeypatch.setattr(lab.flower.simulate, "simulate", simulate)
    return asked


def test_the_help_needs_neither_torch_nor_flower() -> None:
    code = (
        "import sys; from operation.cli import app; app(['--help'], standalone_mode=False);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'flwr', 'ray', 'pydantic')))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "simulate" in done.stdout
    assert "lab" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "rounds must be at least 1, got 0 (command line)"),
        (["--rounds", "ten"], "Invalid value for '--rounds': 'ten' is not a valid integer."),
        (
            ["--daisy-period", "x"],
            "Invalid value for '--daisy-period': 'x' is neither a number of rounds nor 'never'",
        ),
        (["--set", "nonsense=1"], "nonsense is not a setting (command line)"),
        (["--set", "rounds"], "--set takes KEY=VALUE, got 'rounds'"),
        (["--set", "=1"], "--set takes KEY=VALUE, got '=1'"),
        (["--set", "rounds=[1]"], "rounds must be a single value, got '[1]' (command line)"),
        (["--rounds", "1", "--set", "rounds=2"], "rounds is given twice (command line)"),
        (["--set", "sealed=yes"], "sealed must be true or false, got 'yes' (command line)"),
        (["--cpus", "0"], "Invalid value for '--cpus': 0 is not in the range x>=1."),
        (["--model", "nothing"], "nothing"),
        (["--dataset", "mnist", "--data-dir", "/nowhere"], "/nowhere"),
        (["--run-dir", "/dev/null/run"], "/dev/null"),
        (["extra"], "Got unexpected extra argument (extra)"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    feddc: Feddc,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    code, out, err = feddc("simulate", *arguments)

    assert (code, out) == (2, "")
    assert err.startswith("feddc: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_options_become_settings(feddc: Feddc, asked: dict[str, Any], tmp_path: Path) -> None:
    options = "--hospitals 3 --examples 4 --rounds 6 --daisy-period 2 --aggregation-period never"
    options += " --aggregator median --permutation coverage --fraction 1 --model linear"
    options += " --learning-rate 1 --seed 7 --set batch-size=5 --set init=own --cpus 2 --json"

    code, out, _ = feddc("simulate", *options.split(), f"--run-dir={tmp_path}/run")

    assert code == 0
    expected: dict[str, Any] = {"hospitals": 3, "examples": 4, "rounds": 6, "daisy-period": 2}
    expected |= {"aggregation-period": 0, "aggregator": "median", "permutation": "coverage"}
    expected |= {"fraction": 1.0, "model": "linear", "learning-rate": 1.0, "seed": 7}
    expected |= {"batch-size": 5, "init": "own"}
    assert asked["settings"].as_config() == Settings.defaults() | expected
    assert (asked["run_dir"], asked["cpus"]) == (tmp_path / "run", 2)
    assert len(out.splitlines()) == 1
    assert tuple(json.loads(out)) == JSON_KEYS


def test_results_go_to_a_new_folder_under_runs(
    feddc: Feddc, asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    code, out, _ = feddc("simulate")

    assert code == 0
    assert asked["run_dir"].parent == tmp_path / "runs"
    assert asked["settings"].as_config() == Settings.defaults()
    assert "20 = 16 hand-overs + 4 aggregations" in out


def test_a_failed_run_is_one_line_with_its_log_and_exit_code_1(
    feddc: Feddc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SimulationFailed("no quorum", tmp_path / "flower.log")

    monkeypatch.setattr(lab.flower.simulate, "simulate", fail)

    assert feddc("simulate") == (1, "", f"feddc: no quorum; log: {tmp_path}/flower.log\n")


def test_a_command_stopped_early_says_that_nothing_was_kept(
    feddc: Feddc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise SignalReceived(2)

    monkeypatch.setattr(lab.flower.simulate, "simulate", stop)
    monkeypatch.chdir(tmp_path)

    assert feddc("simulate") == (130, "", "feddc: stopped; no files were written\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("true", True),
        ("'5'", "5"),
        ("adam", "adam"),
        ("a=b", "a=b"),
        ("", ""),
        ("2020-01-01", "2020-01-01"),
        ('{"hidden": [64]}', '{"hidden": [64]}'),
    ],
)
def test_set_takes_toml_scalars_and_bare_words(text: str, value: object) -> None:
    parsed = merged({}, [f"key={text}"])["key"]

    assert (type(parsed), parsed) == (type(value), value)


def test_never_and_relative_folders_mean_the_same_in_set_as_in_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    values = merged({}, ["daisy-period=never", "aggregation-period=0", "data-dir=images"])

    assert values == {"daisy-period": 0, "aggregation-period": 0, "data-dir": f"{tmp_path}/images"}


def test_lines_are_few_and_say_how_it_goes() -> None:
    screen, clock = io.StringIO(), FakeClock()
    with shown(Console(file=screen, width=100), bar=False, clock=clock) as on_event:
        on_event({"event": "starting"})
        on_event({"event": "start", "legs": 9, "rounds": 18, "hospitals": ["a", "b"]})
        for leg in range(1, 10):
            clock.sleep(1.0)
            on_event({"event": "evaluation", "leg": leg, "test_accuracy": leg / 10})
            on_event(
                {
                    "event": "leg",
                    "leg": leg,
                    "ending": "aggregation",
                    "missing": {"b": "not connected"},
                }
            )

    assert [line.strip() for line in screen.getvalue().splitlines()] == [
        "0.0 s  starting Flower",
        "0.0 s  2 hospitals, 9 legs (18 rounds)",
        "5.0 s  leg 5/9 aggregation, test 50.0 %, 1 missing",
        "9.0 s  leg 9/9 aggregation, test 90.0 %, 1 missing",
    ]


def test_a_long_series_of_hand_overs_is_not_silent() -> None:
    screen, clock = io.StringIO(), FakeClock()
    with shown(Console(file=screen, width=100), bar=False, clock=clock) as on_event:
        on_event({"event": "start", "legs": 300, "rounds": 300, "hospitals": ["a", "b"]})
        for leg in range(1, 10):
            clock.sleep(8.0)
            on_event({"event": "leg", "leg": leg, "ending": "hand-over", "loss": 0.5})

    assert [line.strip() for line in screen.getvalue().splitlines()] == [
        "0.0 s  2 hospitals, 300 legs (300 rounds)",
        "32.0 s  leg 4/300 hand-over, loss 0.500",
        "64.0 s  leg 8/300 hand-over, loss 0.500",
    ]


def test_the_bar_fits_an_ordinary_terminal() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, color_system=None)
    with shown(console, bar=True) as on_event:
        on_event({"event": "start", "legs": 999, "rounds": 999, "hospitals": ["a", "b"]})
        on_event({"event": "evaluation", "leg": 998, "test_accuracy": 0.9125})
        on_event({"event": "leg", "leg": 998, "ending": "aggregation", "loss": 10.25})

    shown_last = [line for line in screen.getvalue().split("\r") if "998/999" in line][-1]
    assert "leg 998/999 aggregation, loss 10.250, test 91.2 % " in shown_last
    assert "left" in shown_last
    assert "…" not in shown_last


def test_the_table_has_units_and_says_where_everything_is(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    (tmp_path / "evaluator.log").touch()  # empty: nothing to read there
    (tmp_path / "secrets.json").write_text("{}")
    (tmp_path / "journal").mkdir()
    screen = io.StringIO()
    Console(file=screen, width=300).print(closing_table(SUMMARY, tmp_path))

    rows = dict(line.strip().split("  ", 1) for line in screen.getvalue().splitlines())
    assert {name: value.strip() for name, value in rows.items()} == {
        "test accuracy": "81.2 % (the final aggregate)",
        "balanced accuracy": "50.0 % (mean over the classes)",
        "mean over hospitals": "– (each hospital's own model)",
        "legs": "20 = 16 hand-overs + 4 aggregations",
        "absent": "Basel in 7 legs, Cleveland in 7 legs, St [b]Mary in 1 leg",
        "lost chains": "2 (models that were never aggregated)",
        "missed rounds": "11 (not trained, over all models)",
        "sent": "4.2 MB up, 999 B down",
        "hand-overs": "sealed",
        "time": "12.3 s",
        "run folder": str(tmp_path),
        "files": "metrics.jsonl",
    }


def test_the_table_has_the_hospitals_accuracy_where_there_is_no_test_set(tmp_path: Path) -> None:
    screen = io.StringIO()
    without = SUMMARY | {"test_accuracy": None, "test_balanced_accuracy": None}
    Console(file=screen, width=300).print(closing_table(without, tmp_path))
    first, second, *_ = screen.getvalue().splitlines()
    expected = "held-out accuracy  75.0 % (the final aggregate, mean over hospitals)"
    assert first.strip() == expected
    assert second.startswith("legs")


def test_the_table_says_if_no_accuracy_is_known(tmp_path: Path) -> None:
    screen = io.StringIO()
    without = SUMMARY | {"test_accuracy": None, "mean_held_out_accuracy": None}
    Console(file=screen, width=300).print(closing_table(without, tmp_path))
    first, *_ = screen.getvalue().splitlines()
    assert "unknown: no test data here" in first


def test_version_and_help_of_a_lazy_group(feddc: Feddc) -> None:
    assert feddc("--version")[1].startswith("feddc ")
    assert "demo" in feddc("lab", "--help")[1]
    assert feddc("nothing")[2] == "feddc: No such command 'nothing'.\n"
