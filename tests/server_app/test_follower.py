"""Following an experiment: its own account counts, and without one, who died is said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from operation import disk_space
from operation.flower.control_api import Node, RunStatus
from operation.runs.event_file import EventFile
from server_app.experiment import experiment_control, follower
from server_app.experiment import experiment_status as status_module
from server_app.experiment.experiment_folder import ExperimentFolder
from server_app.experiment.experiment_status import experiment_status
from server_app.experiment.flower_runs import FlowerRun, add_flower_run, flower_runs, metrics_length
from server_app.experiment.follower import RunOutcome, follow
from tests.fake_clock import FakeClock

pytestmark = pytest.mark.timing

LEG = {"event": "leg", "leg": 1, "ending": "hand-over"}
END = {"event": "end", "status": "completed", "reason": ""}
FAILED = {"event": "end", "status": "failed", "reason": "leg 2: 1 of 4 hospitals answered"}
INTERRUPTED = {"event": "end", "status": "interrupted", "reason": "the ServerApp was stopped"}


class FakeApi:
    """A SuperLink that says of the run what it is told to."""

    def __init__(self, *statuses: RunStatus | None) -> None:
        self._statuses = list(statuses)

    def status(self, run_id: int) -> RunStatus:
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        if status is None:
            raise httpx.ConnectError("connection refused")
        return status

    def is_over(self, run_id: int) -> bool:
        return self.status(run_id).is_over

    def nodes(self) -> list[Node]:
        return []


RUNNING, DONE = RunStatus("running", ""), RunStatus("finished:completed", "")


@pytest.fixture
def experiment(tmp_path: Path) -> ExperimentFolder:
    return ExperimentFolder("e", tmp_path)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ServerApps that are seen to be running."""
    seen = [4711]
    for module in (follower, experiment_control, status_module):
        monkeypatch.setattr(module, "server_apps", lambda _: list(seen))
    return seen


def write(experiment: ExperimentFolder, *events: dict[str, Any]) -> None:
    with (experiment.folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def followed(
    experiment: ExperimentFolder,
    api: FakeApi,
    position: int = 0,
    on_nodes: Callable[[], object] = int,
    clock: FakeClock | None = None,
) -> tuple[RunOutcome, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []
    outcome = follow(
        None,  # type: ignore[arg-type]
        api,  # type: ignore[arg-type]
        experiment,
        FlowerRun(1, position),
        on_event=seen.append,
        on_nodes=lambda _: on_nodes(),
        clock=clock or FakeClock(),
    )
    return outcome, seen


def test_the_experiment_s_own_account_counts(
    experiment: ExperimentFolder, processes: list[int]
) -> None:
    write(experiment, LEG, END)

    assert followed(experiment, FakeApi(RUNNING, DONE)) == (RunOutcome(True), [LEG, END])


def test_a_full_disk_is_named_before_what_it_has_killed(
    experiment: ExperimentFolder, processes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "free_bytes", lambda folder: 4096)

    outcome, _ = followed(experiment, FakeApi(None))

    assert f"the disk of {experiment.folder} is full (4.1 kB left)" in outcome.reason
    assert "the SuperLink no longer answers" in outcome.reason


def test_a_failure_is_told_with_its_reason(
    experiment: ExperimentFolder, processes: list[int]
) -> None:
    write(experiment, LEG, FAILED)

    outcome, _ = followed(experiment, FakeApi(DONE))

    assert outcome == RunOutcome(False, "leg 2: 1 of 4 hospitals answered")


def test_an_interrupted_experiment_is_said_to_be_resumable(
    experiment: ExperimentFolder, processes: list[int]
) -> None:
    write(experiment, LEG, INTERRUPTED)

    outcome, _ = followed(experiment, FakeApi(DONE))

    assert not outcome.completed
    assert outcome.reason.startswith("the ServerApp was stopped; `feddc coordinator resume`")


def test_the_end_of_an_earlier_run_is_not_this_one_s(
    experiment: ExperimentFolder, processes: list[int]
) -> None:
    write(experiment, LEG, FAILED)
    position = metrics_length(experiment.folder)
    write(experiment, LEG, END)

    outcome, seen = followed(experiment, FakeApi(DONE), position)

    assert outcome.completed
    assert seen == [LEG, FAILED, LEG, END]


def test_flower_s_completed_without_an_account_is_no_success(
    experiment: ExperimentFolder, processes: list[int]
) -> None:
    write(experiment, LEG)

    outcome, _ = followed(experiment, FakeApi(DONE))

    assert not outcome.completed
    assert "ended without a result" in outcome.reason


def test_an_exception_before_the_account_begins_is_told(
    experiment: ExperimentFolder, processes: list[int]
) -> None:
    status = RunStatus("finished:failed", "ServerApp failed with exception: no such\nexperiment")

    outcome, _ = followed(experiment, FakeApi(status))

    assert outcome == RunOutcome(False, "no such experiment")


def test_a_dead_server_app_is_noticed_though_flower_calls_it_running(
    experiment: ExperimentFolder, processes: list[int], clock: FakeClock
) -> None:
    began = clock.now()

    outcome, _ = followed(experiment, FakeApi(RUNNING), on_nodes=processes.clear, clock=clock)

    assert not outcome.completed
    assert "the ServerApp has died" in outcome.reason
    assert "feddc coordinator resume" in outcome.reason
    assert 6 < clock.now() - began < 12  # Flower itself needs most of a minute


def test_a_dead_superlink_is_noticed(
    experiment: ExperimentFolder, processes: list[int], clock: FakeClock
) -> None:
    began = clock.now()

    outcome, _ = followed(experiment, FakeApi(RUNNING, None), clock=clock)

    assert "the SuperLink no longer answers" in outcome.reason
    assert 20 < clock.now() - began < 30


@pytest.mark.parametrize("failures", [1, 5])  # asked every three seconds: up to 18 s away
def test_a_superlink_that_comes_back_is_forgiven(
    failures: int, experiment: ExperimentFolder, processes: list[int]
) -> None:
    calls = iter(range(100))

    def write_the_end() -> None:
        if next(calls) == failures + 2:
            write(experiment, END)

    api = FakeApi(RUNNING, *[None] * failures, RUNNING, RUNNING, DONE)

    assert followed(experiment, api, on_nodes=write_the_end)[0].completed


def test_the_end_waits_for_flower_but_not_for_ever(
    experiment: ExperimentFolder, processes: list[int], clock: FakeClock
) -> None:
    write(experiment, END)
    began = clock.now()

    outcome, _ = followed(experiment, FakeApi(RUNNING), clock=clock)

    assert outcome.completed
    assert 60 <= clock.now() - began < 61


def test_a_half_written_line_is_waited_for_and_a_broken_one_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = EventFile(path)
    assert file.new_events() == []
    path.write_bytes(b'{"event": "a"}\n{"event"')
    assert file.new_events() == [{"event": "a"}]
    with path.open("ab") as metrics:
        metrics.write(b': "b"}\n{"event": "c{"event": "d"}\n{"event": "e"}\n')
    assert file.new_events() == [{"event": "b"}, {"event": "e"}]


@pytest.mark.parametrize(
    ("events", "status", "apps", "state"),
    [
        ([LEG, END], DONE, [], "completed"),
        ([LEG, FAILED], DONE, [], "failed"),
        ([LEG], RUNNING, [1], "running"),
        ([LEG], RUNNING, [], "interrupted"),
        ([LEG], RunStatus("finished:failed", ""), [], "interrupted"),
        ([LEG], RunStatus("finished:stopped", ""), [], "stopped"),
        ([LEG, FAILED], RunStatus("finished:stopped", ""), [], "stopped"),
        ([LEG], None, [], "interrupted"),
        ([LEG, INTERRUPTED], None, [], "interrupted"),
        ([LEG, INTERRUPTED], RunStatus("finished:failed", ""), [], "interrupted"),
        ([], RunStatus("pending", ""), [], "running"),
    ],
)
def test_the_status_of_an_experiment(
    events: list[dict[str, Any]],
    status: RunStatus | None,
    apps: list[int],
    state: str,
    experiment: ExperimentFolder,
    processes: list[int],
) -> None:
    processes[:] = apps
    write(experiment, {"event": "start", "legs": 9}, *events)
    add_flower_run(experiment.folder, FlowerRun(7, 0))

    found = experiment_status(None, experiment.folder, FakeApi(status))  # type: ignore[arg-type]

    assert (found.state, found.legs, found.leg) == (state, 9, 1 if events else 0)


def test_the_status_of_a_running_experiment_names_who_has_not_approved(
    experiment: ExperimentFolder, processes: list[int]
) -> None:
    processes[:] = [1]
    waiting = {"event": "approval", "hospitals": {"Mercy": "waiting for approval"}}
    write(experiment, waiting | {"fingerprint": "ABCD"})
    add_flower_run(experiment.folder, FlowerRun(7, 0))

    def status() -> tuple[str, str]:
        found = experiment_status(None, experiment.folder, FakeApi(RUNNING))  # type: ignore[arg-type]
        return found.state, found.reason

    state, reason = status()
    assert state == "running"
    assert reason.startswith("waiting to begin: Mercy (waiting for approval)")
    write(experiment, {"event": "start", "legs": 9})
    assert status() == ("running", "")


def test_every_flower_run_is_remembered_with_its_place(tmp_path: Path) -> None:
    assert flower_runs(tmp_path) == []
    runs = [FlowerRun(2**63 + 1, 0), FlowerRun(5, 1234)]
    for run in runs:
        add_flower_run(tmp_path, run)

    assert flower_runs(tmp_path) == runs
