"""The status of an experiment, from its folder and, if it is running, the SuperLink."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from operation.flower.control_api import ControlApi, RequestError
from operation.processes import process_group
from server_app.study.study_folder import Study

from .event_file import Event, EventFile
from .experiment_control import server_apps
from .flower_runs import FlowerRun, latest_run
from .live_view import approval_text

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
    events = _read_events(folder)
    run = latest_run(folder)
    flower = _flower_status(api, run)
    if events.has_completed:
        state: State = "completed"
        reason = ""
    elif flower and not flower.startswith("finished"):
        state, reason = _while_flower_runs(study, flower)
        reason = reason or events.approval
    else:
        state, reason = _after_flower(events, run, flower)
    return ExperimentStatus(folder.name, state, reason, events.leg, events.legs)


@dataclass(frozen=True)
class _Events:
    """What metrics.jsonl says: the last leg, and the last end if no leg followed it."""

    leg: int
    legs: int
    end: Event | None
    length: int
    approval: str  # which hospitals have not begun, and why

    @property
    def has_completed(self) -> bool:
        return self.end is not None and self.end.get("status") == "completed"


def _read_events(folder: Path) -> _Events:
    file = EventFile(folder / "metrics.jsonl")
    leg = legs = 0
    end, approval = None, ""
    for event in file.new_events():
        match event.get("event"):
            case "approval":
                approval, end = approval_text(event), None
            case "start":
                legs, end, approval = event.get("legs", legs), None, ""
            case "generation":
                approval = ""
            case "leg":
                leg, end = event["leg"], None
            case "end":
                end = event
    return _Events(leg, legs, end, file.position, approval)


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


def _after_flower(events: _Events, run: FlowerRun | None, flower: str) -> tuple[State, str]:
    if flower == "finished:stopped":
        return "stopped", ""
    if events.end is not None and (run is None or events.length > run.position):
        reason = str(events.end.get("reason") or "no reason given")
        is_interrupted = events.end.get("status") == "interrupted"
        return ("interrupted", "") if is_interrupted else ("failed", reason)
    if run is None:
        return "new", ""
    return "interrupted", "its ServerApp or SuperLink died" if flower else ""
