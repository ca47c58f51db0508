"""Experiments as Flower runs: started, resumed, stopped, and where each of them stands."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from operation import process_group
from operation.flower.control_api import ControlApi, RequestError, explain, pack
from server_app.study.study_folder import Study, StudyError

from .event_file import EventFile
from .experiment_folder import Experiment
from .flower_runs import FlowerRun, add_flower_run, flower_runs, metrics_length

SERVER_APP, CLIENT_APP = "server_app.app:app", "client_app.courier:app"
SERVER_APP_PROCESS = "flwr-serverapp"
_END_SECONDS = 15.0


class RunError(Exception):
    """An experiment can't be started, resumed or stopped; the message says what to do."""


@dataclass(frozen=True)
class Standing:
    """How far an experiment has come."""

    experiment: str
    state: Literal["new", "running", "completed", "failed", "stopped", "interrupted"]
    reason: str
    leg: int
    legs: int
    run_id: int | None


def start(api: ControlApi, experiment: Experiment) -> FlowerRun:
    """Start a Flower run for an experiment: its first, or one that goes on where it stands."""
    bundle = pack(
        server_app=SERVER_APP, client_app=CLIENT_APP, config={"experiment": experiment.id}
    )
    with requests_explained():
        run = FlowerRun(api.start_run(bundle), metrics_length(experiment.folder))
        if not run.run_id:
            raise RunError("Flower did not start the run; see the logs")
    add_flower_run(experiment.folder, run)
    return run


def stop(study: Study, api: ControlApi, experiment: Experiment) -> bool:
    """End an experiment's Flower run, so that nothing writes to its folder; say if one ran."""
    run = next(reversed(flower_runs(experiment.folder)), None)
    with requests_explained():
        was_running = run is not None and not api.is_over(run.run_id)
        if run is not None and was_running:
            with suppress(RequestError):  # it ended meanwhile
                api.stop_run(run.run_id)
    # Flower tells a ServerApp with its next heartbeat, up to half a minute later.
    end_server_apps(study)
    return was_running


def end_server_apps(study: Study) -> None:
    """End the study's ServerApps on this machine, by asking first."""
    deadline = time.monotonic() + _END_SECONDS
    asked = False
    while pids := server_apps(study):
        for pid in pids:
            with suppress(ProcessLookupError):
                late = time.monotonic() > deadline
                if late or not asked:
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        asked = True
        time.sleep(0.1)


def server_apps(study: Study) -> list[int]:
    """Return the processes that run a ServerApp of the study."""
    return process_group.running(study.flower_home, SERVER_APP_PROCESS)


def running_experiment(study: Study, api: ControlApi) -> str | None:
    """Return the experiment that is running now, if one is."""
    for folder in experiment_folders(study):
        run = next(reversed(flower_runs(folder)), None)
        if run is None:
            continue
        with requests_explained():
            is_over = api.is_over(run.run_id)
        if not is_over and (server_apps(study) or not process_group.VISIBLE):
            return folder.name
    return None


def check_nothing_runs(study: Study, api: ControlApi) -> None:
    if name := running_experiment(study, api):
        raise RunError(
            f"the experiment {name} is running: `feddc coordinator follow` or `stop` it first"
        )


def experiment_folders(study: Study) -> list[Path]:
    """Return the folders of the study's experiments, oldest first."""
    if not study.experiments.is_dir():
        return []
    folders = (path for path in study.experiments.iterdir() if path.is_dir())
    return sorted(folders, key=lambda folder: (_made(folder), folder.name))


def pick(study: Study, name: str | None) -> Experiment:
    """Open the experiment of this id, or the latest one."""
    if name is None:
        folders = experiment_folders(study)
        if not folders:
            raise StudyError("there is no experiment yet: `feddc coordinator run`")
        name = folders[-1].name
    return Experiment.open(study, name)


def standing(study: Study, folder: Path, api: ControlApi | None) -> Standing:
    """Say where an experiment stands, from its folder and, if it is up, the SuperLink."""
    runs = flower_runs(folder)
    run = runs[-1] if runs else None
    file = EventFile(folder / "metrics.jsonl")
    leg = legs = 0
    end = None
    for event in file.new_events():
        match event.get("event"):
            case "start":
                legs, end = event.get("legs", legs), None
            case "leg":
                leg, end = event["leg"], None
            case "end":
                end = event
    run_id = run.run_id if run else None

    def stands(state: str, reason: str = "") -> Standing:
        return Standing(folder.name, state, reason, leg, legs, run_id)  # type: ignore[arg-type]

    if end is not None and end.get("status") == "completed":
        return stands("completed")
    flower = ""
    if run is not None and api is not None:
        with suppress(RequestError):
            flower = api.status(run.run_id).status
    if flower and not flower.startswith("finished"):
        if server_apps(study) or not process_group.VISIBLE or flower != "running":
            return stands("running")
        return stands("interrupted", "its ServerApp has died")
    if flower == "finished:stopped":
        return stands("stopped")
    if end is not None and (run is None or file.position > run.position):
        return stands("failed", str(end.get("reason") or "no reason given"))
    if run is None:
        return stands("new")
    return stands("interrupted", "its ServerApp or SuperLink died" if flower else "")


@contextmanager
def requests_explained() -> Iterator[None]:
    """Say in one line what the SuperLink answered when it did not do as asked."""
    try:
        yield
    except RequestError as error:
        raise RunError(f"the SuperLink did not do as asked: {explain(error)}") from error


def _made(folder: Path) -> float:
    # The oldest file in it: a folder's own time is that of its newest.
    return min((path.stat().st_mtime for path in folder.iterdir()), default=folder.stat().st_mtime)
