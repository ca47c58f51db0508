"""An experiment in the foreground: followed in the terminal to its end, then its result."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from operation.processes import signals
from operation.terminal import console, echo, error_console, fail

from .shared import exit_on_experiment_error

if TYPE_CHECKING:
    from server_app.experiment.experiment_folder import ExperimentFolder
    from server_app.experiment.flower_runs import FlowerRun
    from server_app.experiment.follower import RunOutcome
    from server_app.study.study_folder import Study


class _Detached(BaseException):
    """The user pressed Ctrl-C: the experiment continues in the background."""


def follow_to_end(study: "Study", experiment: "ExperimentFolder", json_output: bool) -> None:
    """Show an experiment until it ends, print its result, and exit with 1 if it failed."""
    from server_app.experiment.flower_runs import latest_run

    run = latest_run(experiment.folder)
    if run is None:
        fail(
            2,
            f"the experiment {experiment.id} was never started: start it with "
            "`feddc coordinator resume`",
        )
    with exit_on_experiment_error():
        try:
            outcome = _show(study, experiment, run)
        except _Detached:
            echo(
                f"\n{experiment.id} continues in the background: `feddc coordinator follow`, or "
                "`stop`.",
                err=True,
            )
            raise typer.Exit(130) from None
    _print_outcome(study, experiment, outcome.completed, outcome.reason, json_output)


def _show(study: "Study", experiment: "ExperimentFolder", run: "FlowerRun") -> "RunOutcome":
    from server_app.experiment.follower import follow
    from server_app.experiment.live_view import watched
    from server_app.study.registration import control

    with _ctrl_c_detaches(), watched(error_console()) as display:
        return follow(
            study,
            control(study),
            experiment,
            run,
            on_event=display.event,
            on_nodes=lambda nodes: display.nodes(list(nodes)),
        )


@contextmanager
def _ctrl_c_detaches() -> Iterator[None]:
    def detach(number: int, frame: object) -> None:
        raise _Detached

    with signals.caught(detach, (signals.SIGINT,)):
        yield


def _print_outcome(
    study: "Study", experiment: "ExperimentFolder", completed: bool, reason: str, json_output: bool
) -> None:
    from server_app.experiment.first_model import AGGREGATE
    from server_app.experiment.progress import closing_table

    summary: dict[str, Any] = {}
    if completed:
        try:
            summary = json.loads((experiment.folder / "summary.json").read_text("utf-8"))
        except (OSError, ValueError):
            completed, reason = False, "the ServerApp ended without a summary"
    if json_output:
        outcome = {"experiment": experiment.id, "status": "completed" if completed else "failed"}
        echo(json.dumps(outcome | ({"reason": reason} if reason else {}) | summary))
    elif completed:
        console().print(closing_table(summary, experiment.folder))
    if completed:
        return
    if (experiment.folder / AGGREGATE).exists():
        start = f"`feddc coordinator run --from {experiment.id}`"
        echo(f"{start} starts a new experiment from its last aggregate", err=True)
    logs = f"{experiment.log} and {study.logs}" if experiment.log.exists() else study.logs
    fail(1, f"{experiment.id}: {reason}; logs: {logs}")
