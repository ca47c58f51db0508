"""Experiments from the coordinator's command line, with real hospitals: agents and SuperNodes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from client_app.connect.agent_client import AgentUnreachable, health
from client_app.hospital_folder import HospitalFolder
from server_app.experiment.experiment_control import server_apps
from server_app.experiment.experiment_folder import ExperimentFolder
from server_app.study import study_members
from server_app.study.registration import control
from tests.server_app.conftest import Coordinator

NAMES = ("Charite", "Mercy", "St Mary")
SMALL = [
    "input-shape=3",
    "classes=2",
    'model-options={"hidden": [4]}',
    "rounds=4",
    "aggregation-period=2",
    "batch-size=8",
    "leg-timeout=120",
]
pytestmark = [pytest.mark.slow, pytest.mark.timing]


def settings(*changes: str) -> list[str]:
    # Of three hospitals none may be missing in a secure sum: a stopped SuperNode needs a minute.
    patient = ("leg-timeout=300", "quorum-wait=300")
    chosen = dict(setting.split("=", 1) for setting in (*SMALL, *patient, *changes))
    return [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def federation(nginx: str, new_coordinator: Callable[[], Coordinator]) -> Iterator[Coordinator]:
    """A coordinator that is up and three hospitals that are connected."""
    made = new_coordinator()
    places = [made.enrol(name) for name in NAMES]
    roster, _ = study_members.write_roster(made.study)
    with ExitStack() as stack:
        assert made.feddc("up").returncode == 0
        stack.callback(made.feddc, "down")
        for number, place in enumerate(places):
            _give_data(place, number)
            place.pin(roster.signed(made.study.identity()))
            stack.enter_context(_agent(place))
            stack.enter_context(made.connected(place))
        _wait(lambda: sum(node.is_online for node in control(made.study).nodes()) == len(NAMES))
        yield made


def _give_data(place: HospitalFolder, number: int) -> None:
    rows = [f"{(n + number) % 7},{n % 5},{n % 3},{n % 2}" for n in range(60)]
    (place.path / "data").mkdir(mode=0o700)
    (place.path / "data" / "records.csv").write_text("\n".join(["a,b,c,label", *rows]))
    written = place.configuration.read_text()
    assert "classes = []" in written
    place.configuration.write_text(written.replace("classes = []", 'classes = ["0", "1"]'))


class _agent:  # noqa: N801 (used like a function)
    def __init__(self, place: HospitalFolder) -> None:
        self._place = place

    def __enter__(self) -> None:
        command = [sys.executable, "-m", "operation.cli", "hospital", "serve"]
        with (self._place.path / "agent.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--folder", str(self._place.path)], stdout=log, stderr=log
            )
        _wait(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._place.path / "agent.log").read_text()
        try:
            return bool(health(str(self._place.path / "socket" / "agent.sock")))
        except AgentUnreachable:
            return False

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(120)


def _wait(is_so: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def events(coordinator: Coordinator, experiment: str) -> list[dict[str, Any]]:
    path: Path = coordinator.study.experiments / experiment / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def state_of(coordinator: Coordinator, name: str) -> tuple[str, str]:
    shown = json.loads(coordinator.feddc("status", "--json").stdout)["experiments"]
    return next((one["state"], one["reason"]) for one in shown if one["id"] == name)


def test_an_experiment_runs_to_its_end(federation: Coordinator) -> None:
    done = federation.feddc("run", "--json", *settings())

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "completed"
    assert (told["legs"], told["sealed"], told["missing"]) == (4, True, {})
    assert "leg 4/4" in done.stderr
    seen = json.loads(federation.feddc("status", "--json").stdout)
    assert [hospital["connected"] for hospital in seen["hospitals"]] == [True] * 3
    assert seen["experiments"][-1]["id"] == told["experiment"]
    assert seen["experiments"][-1]["state"] == "completed"

    again = federation.feddc("resume", told["experiment"])
    assert again.returncode == 2
    assert "is complete" in again.stderr

    # Another one begins with its model; one round without a step leaves it as it was.
    more = ("rounds=1", "aggregation-period=1", "learning-rate=1e-30")
    done = federation.feddc("run", "--json", "--from", told["experiment"], *settings(*more))
    assert done.returncode == 0, done.stderr
    models = [
        load_file(federation.study.experiments / name / "model.safetensors")
        for name in (told["experiment"], json.loads(done.stdout)["experiment"])
    ]
    for name, array in models[0].items():
        np.testing.assert_allclose(models[1][name], array, rtol=1e-6)


def test_an_experiment_is_stopped_and_resumed(federation: Coordinator) -> None:
    done = federation.feddc("run", "--json", "--detach", *settings("rounds=10"))
    assert done.returncode == 0, done.stderr
    name = json.loads(done.stdout)["experiment"]
    _wait(lambda: any(event["event"] == "leg" for event in events(federation, name)))

    second = federation.feddc("run", *settings())
    assert second.returncode == 1
    assert f"the experiment {name} is running" in second.stderr

    # A newer experiment that never started: `stop` means the one that runs.
    newer = ExperimentFolder.create(federation.study, {"input-shape": "3", "classes": 2})
    assert f"{name} is stopped" in federation.feddc("stop").stdout
    assert federation.feddc("stop").stdout == "No experiment is running.\n"
    assert federation.feddc("stop", newer.id).stdout == f"{newer.id} was not running.\n"
    assert server_apps(federation.study) == []
    legs = max(event.get("leg", 0) for event in events(federation, name))
    assert legs < 10
    assert state_of(federation, name) == ("stopped", "")

    done = federation.feddc("resume", name, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["legs"] == 10


def test_a_killed_server_app_is_noticed_and_resumed(federation: Coordinator) -> None:
    name = json.loads(federation.feddc("run", "--json", "--detach", *settings("rounds=6")).stdout)[
        "experiment"
    ]
    _wait(lambda: any(event["event"] == "leg" for event in events(federation, name)))
    for pid in server_apps(federation.study):
        os.kill(pid, signal.SIGKILL)

    done = federation.feddc("follow", "--json")
    assert done.returncode == 1
    assert "the ServerApp" in json.loads(done.stdout)["reason"]
    assert "feddc coordinator resume" in done.stderr

    assert federation.feddc("resume", name).returncode == 0


def test_a_wrong_setting_starts_nothing(federation: Coordinator) -> None:
    before = list(federation.study.experiments.iterdir())

    for wrong in ("rounds=0", "hospitals=3", "colour=red", "model=none-such"):
        done = federation.feddc("run", *settings(wrong))
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1

    assert list(federation.study.experiments.iterdir()) == before


def test_an_experiment_that_was_left_alone_goes_on(federation: Coordinator) -> None:
    command = [sys.executable, "-m", "operation.cli", "coordinator", "run", *settings("rounds=6")]
    process = subprocess.Popen(
        [*command, "--study", str(federation.study.folder)],
        stderr=subprocess.PIPE,
        text=True,
        # A test that was started in the background ignores SIGINT, and so would the command.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    name = first.split()[1].rstrip(",")
    _wait(lambda: any(event["event"] == "leg" for event in events(federation, name)))
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(120) == 130
    assert f"{name} continues in the background" in rest

    done = federation.feddc("follow", name, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["legs"] == 6


def test_down_interrupts_an_experiment_which_is_resumed_after_up(federation: Coordinator) -> None:
    done = federation.feddc("run", "--json", "--detach", *settings("rounds=10"))
    name = json.loads(done.stdout)["experiment"]
    _wait(lambda: any(event["event"] == "leg" for event in events(federation, name)))

    assert federation.feddc("down").stdout == "The coordinator is down.\n"
    assert state_of(federation, name) == ("interrupted", "")
    assert federation.feddc("up").returncode == 0
    assert state_of(federation, name)[0] == "interrupted"

    done = federation.feddc("resume", name, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["legs"] == 10
