"""The status of an experiment, from its folder and, if it is running, the SuperLink."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from operation.flower.control_api import ControlApi, RequestError
from operation.processes import process_group
from operation.runs.event_file import FILE_NAME, EventFile
from operation.runs.history import RunHistory, approval_text
from server_app.study.study_folder import Study

from .experiment_control import server_apps
from .flower_runs import FlowerRun, latest_run

State = Literal["new", "running", "completed", "failed", "stopped", "interrupted"]


@dataclass(frozen=True)
class ExperimentStatus:
    """The state of an experiment and the last leg it completed."""

    experiment: str
    state: State
    reason: str
    leg: int
    legs: int


def experiment_status(study: Study, folder: Path, api: ControlApi | None) -> ExperimentStatus:
    """Return the status of the experiment in `folder`; without `api` from its files alone."""
    file = EventFile(folder / FILE_NAME)
    history = RunHistory.of(file.new_events())
    run = latest_run(folder)
    flower = _flower_status(api, run)
    if history.has_completed:
        state: State = "completed"
        reason = ""
    elif flower and not flower.startswith("finished"):
        state, reason = _while_flower_runs(study, flower)
        reason = reason or approval_text(history.approval)
    else:
        state, reason = _after_flower(history, file.position, run, flower)
    return ExperimentStatus(folder.name, state, reason, history.done, history.legs)


def _flower_status(api: ControlApi | None, run: FlowerRun | None) -> str:
    if api is not None and run is not None:
        with suppress(RequestError):
            return api.status(run.run_id).status
    return ""


def _while_flower_runs(study: Study, flower: str) -> tuple[State, str]:
    # Flower notices a dead ServerApp after most of a minute; its process is gone at once.
    if flower != "running" or not process_group.VISIBLE or server_apps(study):
        return "running", ""
    return "interrupted", "its ServerApp has died"


def _after_flower(
    history: RunHistory, length: int, run: FlowerRun | None, flower: str
) -> tuple[State, str]:
    if flower == "finished:stopped":
        return "stopped", ""
    if history.end is not None and (run is None or length > run.position):
        reason = str(history.end.get("reason") or "no reason given")
        is_interrupted = history.end.get("status") == "interrupted"
        return ("interrupted", "") if is_interrupted else ("failed", reason)
    if run is None:
        return "new", ""
    return "interrupted", "its ServerApp or SuperLink died" if flower else ""
