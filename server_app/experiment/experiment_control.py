"""Experiments as Flower runs: start, resume, stop and find them."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from operation.flower.control_api import ControlApi, RequestError, explain, pack
from operation.processes import process_group
from server_app.study.study_folder import Study, StudyError

from .experiment_folder import ExperimentFolder
from .flower_runs import FlowerRun, add_flower_run, latest_run, metrics_length

SERVER_APP, CLIENT_APP = "server_app.app:app", "client_app.courier:app"
SERVER_APP_PROCESS = "flwr-serverapp"
_END_SECONDS = 15.0


class RunError(Exception):
    """An experiment cannot be started, resumed or stopped; the message says what to do."""


def start(api: ControlApi, experiment: ExperimentFolder) -> FlowerRun:
    """Start a Flower run for an experiment: its first, or one that resumes it."""
    bundle = pack(
        server_app=SERVER_APP, client_app=CLIENT_APP, config={"experiment": experiment.id}
    )
    with requests_explained():
        run = FlowerRun(api.start_run(bundle), metrics_length(experiment.folder))
        if not run.run_id:
            raise RunError("Flower did not start the run: see the logs in the study's folder")
    add_flower_run(experiment.folder, run)
    return run


def stop(study: Study, api: ControlApi, experiment: ExperimentFolder) -> bool:
    """End an experiment's Flower run and ServerApp; return whether a run was under way."""
    run = latest_run(experiment.folder)
    with requests_explained():
        was_running = run is not None and not api.is_over(run.run_id)
        if run is not None and was_running:
            with suppress(RequestError):  # it has just ended
                api.stop_run(run.run_id)
    # Flower stops a ServerApp with its next heartbeat, up to half a minute later.
    end_server_apps(study)
    return was_running


def unfinished_experiments(study: Study, api: ControlApi) -> list[ExperimentFolder]:
    """Return the experiments whose Flower run has not ended, oldest first."""
    found = []
    for folder in experiment_folders(study):
        run = latest_run(folder)
        with requests_explained():
            if run is not None and not api.is_over(run.run_id):
                found.append(ExperimentFolder.open(study, folder.name))
    return found


def end_server_apps(study: Study) -> None:
    """End the study's ServerApps on this machine: SIGTERM, and SIGKILL after a grace period."""
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
    """Return the id of the running experiment, or None."""
    unfinished = unfinished_experiments(study, api)
    # Flower may not know yet that a ServerApp has died.
    is_alive = not process_group.VISIBLE or bool(server_apps(study))
    return unfinished[0].id if unfinished and is_alive else None


def check_nothing_runs(study: Study, api: ControlApi) -> None:
    if name := running_experiment(study, api):
        raise RunError(
            f"the experiment {name} is running: stop it first with `feddc coordinator stop`"
        )


def experiment_folders(study: Study) -> list[Path]:
    """Return the folders of the study's experiments, oldest first."""
    if not study.experiments.is_dir():
        return []
    folders = (path for path in study.experiments.iterdir() if path.is_dir())
    return sorted(folders, key=lambda folder: (_created(folder), folder.name))


def pick(study: Study, name: str | None) -> ExperimentFolder:
    """Open the experiment of this id, or the latest one."""
    if name is None:
        folders = experiment_folders(study)
        if not folders:
            raise StudyError("there is no experiment yet: start one with `feddc coordinator run`")
        name = folders[-1].name
    return ExperimentFolder.open(study, name)


@contextmanager
def requests_explained() -> Iterator[None]:
    """Turn a failed request to the SuperLink into a RunError with its reason."""
    try:
        yield
    except RequestError as error:
        raise RunError(f"SuperLink request failed: {explain(error)}") from error


def _created(folder: Path) -> float:
    # The age of its oldest file: a folder's own time changes with every new file.
    return min((path.stat().st_mtime for path in folder.iterdir()), default=folder.stat().st_mtime)
