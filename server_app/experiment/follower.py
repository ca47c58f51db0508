"""Follows a running experiment: its events, and whether its ServerApp is alive.

A killed ServerApp writes no end event. Flower notices after most of a minute; the list of this
machine's processes shows it sooner.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from operation import disk_space
from operation.clock import Clock
from operation.disk_space import byte_size
from operation.flower.control_api import ControlApi, Node, RequestError
from operation.processes import process_group
from operation.runs.event_file import FILE_NAME, Event, EventFile
from server_app.study.study_folder import Study

from .experiment_control import server_apps
from .experiment_folder import ExperimentFolder
from .flower_runs import FlowerRun

_READ_SECONDS, _ASK_SECONDS = 0.2, 3.0
_GONE_SECONDS, _LINK_SECONDS, _CLOSING_SECONDS = 6.0, 20.0, 60.0
_FULL_BYTES = 1_000_000
_RAISED = "failed with exception:"  # Flower's prefix for an exception of a ServerApp
_RESUME = "`feddc coordinator resume` continues from the last completed leg"


@dataclass(frozen=True)
class RunOutcome:
    """How a run of an experiment ended."""

    completed: bool
    reason: str = ""


def follow(
    study: Study,
    api: ControlApi,
    experiment: ExperimentFolder,
    run: FlowerRun,
    *,
    on_event: Callable[[Event], None],
    on_nodes: Callable[[list[Node]], None],
    clock: Clock | None = None,
) -> RunOutcome:
    """Pass on all events until the run has ended, and return its outcome.

    Events of earlier runs are passed on too; only the end of this run counts.
    """
    file = EventFile(experiment.folder / FILE_NAME)
    for event in file.new_events(until=run.position):
        on_event(event)
    clock = clock or Clock()
    life = _Life(study, api, run, clock)
    while True:
        death = life.death()
        for event in file.new_events():  # after the check: an end written just before counts
            on_event(event)
            if event.get("event") == "end":
                life.wait_for_flower()
                return _ended(event)
        if death:
            return RunOutcome(False, _with_full_disk(experiment.folder, death))
        if (nodes := life.nodes()) is not None:
            on_nodes(nodes)
        clock.sleep(_READ_SECONDS)


def _ended(event: Event) -> RunOutcome:
    if event.get("status") == "completed":
        return RunOutcome(True)
    reason = str(event.get("reason") or "the ServerApp failed without a reason")
    if event.get("status") == "interrupted":
        reason = f"{reason}; {_RESUME}"
    return RunOutcome(False, reason)


def _with_full_disk(folder: Path, death: str) -> str:
    """Name a full disk before what it has killed: a SuperLink without space stops answering."""
    free = disk_space.free_bytes(folder)
    if free >= _FULL_BYTES:
        return death
    return f"the disk of {folder} is full ({byte_size(free)} left): free some space; {death}"


class _Life:
    """Checks whether the ServerApp and the SuperLink of a run are alive."""

    def __init__(self, study: Study, api: ControlApi, run: FlowerRun, clock: Clock) -> None:
        self._study, self._api, self._run, self._clock = study, api, run, clock
        self._asked = self._nodes_asked = -math.inf
        self._answered = clock.now()
        self._seen: float | None = None

    def death(self) -> str:
        """Return what has died and what to do; empty if the run is alive."""
        now = self._clock.now()
        if now - self._asked < _ASK_SECONDS:
            return ""
        self._asked = now
        try:
            status = self._api.status(self._run.run_id)
        except RequestError:
            if now - self._answered > _LINK_SECONDS:
                return (
                    f"the SuperLink no longer answers: run `feddc coordinator up`, then {_RESUME}"
                )
            return ""
        self._answered = now
        if status.status == "finished:stopped":
            return f"stopped; {_RESUME}"
        if status.is_over:
            said = " ".join(status.details.split())
            if _RAISED in said:
                return said.partition(_RAISED)[2].strip()
            details = f" ({said})" if said else ""
            return f"the ServerApp ended without a result{details}; {_RESUME}"
        if server_apps(self._study):
            self._seen = now
        elif self._seen is not None and now - self._seen > _GONE_SECONDS:
            return f"the ServerApp has died (out of memory?); {_RESUME}"
        return ""

    def nodes(self) -> list[Node] | None:
        now = self._clock.now()
        if now - self._nodes_asked < _ASK_SECONDS:
            return None
        self._nodes_asked = now
        try:
            return self._api.nodes()
        except RequestError:
            return None

    def wait_for_flower(self) -> None:
        """Wait until Flower has closed the run too, so that the next one can start."""
        deadline = self._clock.now() + _CLOSING_SECONDS
        while self._clock.now() < deadline:
            try:
                if self._api.is_over(self._run.run_id):
                    return
            except RequestError:
                return
            if process_group.VISIBLE and not server_apps(self._study):
                return
            self._clock.sleep(_READ_SECONDS)
