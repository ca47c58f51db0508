"""Runs on Flower's simulation engine: what comes of them, and what is left when they end."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lab.flower.simulate
from lab.commands.simulate_command import JSON_KEYS
from lab.flower.simulate import SimulationFailed, simulate
from lab.flower.simulation_engine import EngineError
from operation.config import SettingsError
from operation.flower.control_api import RunStatus
from server_app.config.run_config import Settings
from tests.processes import is_alive, wait_until

STUB_APP = Path(__file__).parent / "stub_app"
ROOT = Path(__file__).parents[3]
SETTINGS = Settings.from_run_config({"hospitals": 2, "examples": 2, "rounds": 2}, source="test")
SUMMARY = dict.fromkeys(JSON_KEYS, 1)
COMPLETED = RunStatus("finished:completed", "")


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, short enough for Ray; a test looks what is left in it."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{STUB_APP}{os.pathsep}{ROOT}")
    monkeypatch.setenv("STUB", "completed")
    monkeypatch.setattr(lab.flower.simulate, "SERVER_APP", "stub_server:app")
    monkeypatch.setattr(lab.flower.simulate, "CLIENT_APP", "stub_client:app")


# --- real runs: Flower, Ray, and a stub in place of the learning ----------------------------------


@pytest.mark.timing
@pytest.mark.slow
def test_a_run_gives_its_summary_and_leaves_nothing_behind(
    tmp_path: Path, temporary: Path, stub: None
) -> None:
    events: list[dict[str, Any]] = []
    family: set[int] = set()
    # Other tests' too: Python's tracker of shared memory stays once any of them has spawned.
    before = set(_descendants(os.getpid()))

    def on_event(event: dict[str, Any]) -> None:
        events.append(event)
        family.update(set(_descendants(os.getpid())) - before)

    summary = simulate(SETTINGS, run_dir=tmp_path / "run", cpus=2, on_event=on_event)

    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [event["event"] for event in events] == [
        *("starting", "start", "leg", "leg", "evaluation", "end")
    ]
    assert len(events[1]["hospitals"]) == 2
    assert [event["answered"] for event in events if event["event"] == "leg"] == [2, 2]
    assert "the stub is running" in (tmp_path / "run" / "flower.log").read_text()
    assert len(family) >= 8  # SuperLink, SuperExec, simulation, Ray's daemons, two actors
    wait_until(lambda: not any(is_alive(pid) for pid in family))
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timing
def test_a_run_whose_server_app_raises_exits_with_1_and_the_reason(
    tmp_path: Path, temporary: Path, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB", "raises")

    done = subprocess.run(
        [*_command(tmp_path), "--verbose"], capture_output=True, text=True, check=False
    )

    log = tmp_path / "run" / "flower.log"
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        f"feddc: the stub was told to raise (Flower: finished:failed); log: {log}"
    )
    assert "RuntimeError: the stub was told" in log.read_text()
    assert "RuntimeError: the stub was told" in done.stderr  # --verbose shows Flower's log
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_ends_everything_and_says_what_it_kept(
    number: signal.Signals,
    tmp_path: Path,
    temporary: Path,
    stub: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STUB", "waits")
    command = subprocess.Popen(_command(tmp_path), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: "evaluation" in _events(tmp_path), 300)
    family = _descendants(command.pid)

    command.send_signal(number)
    _, errors = command.communicate(timeout=180)

    assert command.returncode == 128 + number
    assert errors.splitlines()[-1] == (
        f"feddc: stopped; kept in {tmp_path / 'run'}: flower.log, metrics.jsonl"
    )
    assert len(family) >= 7
    wait_until(lambda: not any(is_alive(pid) for pid in family))
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timing
def test_a_killed_command_still_leaves_nothing_behind(
    tmp_path: Path, temporary: Path, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB", "waits")
    command = subprocess.Popen(_command(tmp_path), stderr=subprocess.DEVNULL)
    wait_until(lambda: "evaluation" in _events(tmp_path), 300)
    family = _descendants(command.pid)

    command.kill()
    command.wait()

    wait_until(lambda: not any(is_alive(pid) for pid in family), 300)
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timing
def test_two_runs_at_the_same_time_do_not_disturb_each_other(
    tmp_path: Path, temporary: Path, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    monkeypatch.setenv("STUB", "waits")
    waiting = subprocess.Popen(_command(folders[0]), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: "leg" in _events(folders[0]), 300)
    monkeypatch.setenv("STUB", "completed")

    done = subprocess.run(
        [*_command(folders[1]), "--json"], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stdout)["run_dir"] == str(folders[1] / "run")
    assert len(done.stdout.splitlines()) == 1
    assert tuple(json.loads(done.stdout)) == JSON_KEYS
    family = _descendants(waiting.pid)
    assert len(family) >= 7  # all of the first run is still there
    assert all(is_alive(pid) for pid in family)
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=180)
    assert waiting.returncode == 130
    assert list(temporary.iterdir()) == []


# --- what counts as success: Flower is played by a function ---------------------------------------


def _flower(
    *,
    events: list[dict[str, Any]],
    summary: bool = True,
    status: RunStatus | Exception = COMPLETED,
    log: str = "",
) -> Callable[..., RunStatus]:
    def run_app(
        *, config: dict[str, Any], watch: Callable[[], None], log_path: Path, **_: Any
    ) -> RunStatus:
        log_path.write_text(log)
        folder = Path(config["run-dir"])
        for event in events:
            with (folder / "metrics.jsonl").open("a") as file:
                line = json.dumps(event) + "\n"
                file.write(line[:10])
                file.flush()
                watch()
                file.write(line[10:])
        watch()
        if summary:
            (folder / "summary.json").write_text(json.dumps(SUMMARY))
        if isinstance(status, Exception):
            raise status
        return status

    return run_app


START = {"event": "start", "legs": 1, "rounds": 1, "hospitals": ["a", "b"]}
END = {"event": "end", "status": "completed", "reason": ""}
FAILED = {"event": "end", "status": "failed", "reason": "quorum: 1 of 2 hospitals answered"}


def test_events_are_passed_on_whole_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab.flower.simulate, "run_app", _flower(events=[START, END]))
    events: list[dict[str, Any]] = []

    assert simulate(SETTINGS, run_dir=tmp_path, on_event=events.append) == SUMMARY
    assert events == [{"event": "starting"}, START, END]


@pytest.mark.parametrize(
    ("flower", "reason"),
    [
        (_flower(events=[START, FAILED]), "quorum: 1 of 2 hospitals answered"),
        (_flower(events=[START]), "the ServerApp ended without reporting a result"),
        (_flower(events=[START, END], summary=False), "the ServerApp ended without a summary"),
        (
            _flower(events=[START, END], status=RunStatus("finished:stopped", "")),
            "Flower's run status is finished:stopped",
        ),
        (
            _flower(
                events=[],
                status=RunStatus("finished:failed", "An error was encountered."),
                log="Exception: The current node timed out during startup. This could happen …",
            ),
            "Ray did not start within its time limit, as on a very busy machine: run it again",
        ),
        (_flower(events=[START], status=EngineError("SuperLink ended")), "SuperLink ended"),
        (
            _flower(events=[START, FAILED], status=EngineError("SuperLink ended")),
            "quorum: 1 of 2 hospitals answered",
        ),
    ],
)
def test_a_run_is_a_success_only_if_everyone_says_so(
    flower: Callable[..., RunStatus], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab.flower.simulate, "run_app", flower)

    with pytest.raises(SimulationFailed) as failure:
        simulate(SETTINGS, run_dir=tmp_path / "run")

    assert failure.value.reason == reason
    assert failure.value.log_path == tmp_path / "run" / "flower.log"


def test_a_folder_with_results_is_not_written_to(tmp_path: Path, stub: None) -> None:
    (tmp_path / "summary.json").write_text("{}")

    with pytest.raises(SettingsError, match="already holds a run"):
        simulate(SETTINGS, run_dir=tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_the_size_of_a_running_ray_cluster_is_not_ours_to_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")

    with pytest.raises(SettingsError, match=r"RAY_ADDRESS=10\.0\.0\.1:6379"):
        simulate(SETTINGS, run_dir=tmp_path, cpus=2)


def _command(folder: Path) -> list[str]:
    options = ["--hospitals=2", "--examples=2", "--rounds=2", "--cpus=1", f"--run-dir={folder}/run"]
    return [sys.executable, str(STUB_APP / "feddc_with_stub.py"), "simulate", *options]


def _events(folder: Path) -> list[str]:
    path = folder / "run" / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["event"] for line in lines]


def _descendants(ancestor: int) -> set[int]:
    """Find a process's children and theirs by parentage, independently of how `lab` knows them."""
    parents = {pid: stat[1] for pid in _pids() if (stat := _stat(pid))}
    found: set[int] = set()
    while new := {p for p, parent in parents.items() if int(parent) in found | {ancestor}} - found:
        found |= new
    return found


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    """Return state, parent, … of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
