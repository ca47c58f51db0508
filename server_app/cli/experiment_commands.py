"""`feddc coordinator run`, `follow`, `status`, `resume`, `stop`: experiments from start to end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from operation import signals
from operation.terminal import console, fail

from .shared import HERE, Folder, open_study, told

if TYPE_CHECKING:
    from server_app.experiment.experiment_folder import Experiment
    from server_app.experiment.flower_runs import FlowerRun
    from server_app.study.study_folder import Study

Id = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="The experiment; else the latest one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON line.")]
Detach = Annotated[bool, typer.Option("--detach", help="Start it, and don't follow it.")]


class _LeftAlone(BaseException):
    """The user pressed Ctrl-C: the experiment goes on without us."""


def run(
    study: Folder = HERE,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Instead of settings.toml's; repeatable."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="For a rehearsal only: the randomness of `feddc simulate --seed`."
        ),
    ] = None,
    begin_with: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="ID|FILE",
            help="Begin with an experiment's last aggregate, or with a .safetensors file's model.",
        ),
    ] = None,
    detach: Detach = False,
    json_output: Json = False,
) -> None:
    """Start an experiment with the members of the roster, and follow it to its end."""
    from operation.set_options import parse_set_options

    with _told_of_runs():
        place = open_study(study)
        values = place.settings() | parse_set_options(settings)
        _check_roster(place)
        from server_app.experiment import (
            experiment_control,  # Flower: a second or two
            first_model,  # Flower: a second or two
        )
        from server_app.experiment.experiment_folder import Experiment
        from server_app.study.registration import control, register_members

        model = None if begin_with is None else first_model.find(place, begin_with)
        api = control(place)
        experiment_control.check_nothing_runs(place, api)
        register_members(place)
        experiment = Experiment.create(place, values, seed=seed, begin_with=model)
        experiment_control.start(api, experiment)
        typer.echo(f"experiment {experiment.id}, in {experiment.folder}", err=True)
    if detach:
        _say_how_to_follow(experiment.id, json_output)
        return
    _follow(place, experiment, json_output)


def follow(experiment: Id = None, study: Folder = HERE, json_output: Json = False) -> None:
    """Follow an experiment that is running."""
    with _told_of_runs():
        place = open_study(study)
        from server_app.experiment import experiment_control

        chosen = experiment_control.pick(place, experiment)
    _follow(place, chosen, json_output)


def resume(
    experiment: Id = None, study: Folder = HERE, detach: Detach = False, json_output: Json = False
) -> None:
    """Go on with an experiment that was interrupted, from where it stands."""
    with _told_of_runs():
        place = open_study(study)
        from server_app.experiment import experiment_control
        from server_app.study.registration import control, register_members

        api = control(place)
        chosen = experiment_control.pick(place, experiment)
        if chosen.is_complete:
            fail(2, f"the experiment {chosen.id} is complete; its results are in {chosen.folder}")
        experiment_control.check_nothing_runs(place, api)
        experiment_control.stop(place, api, chosen)  # what Flower still believes to be running
        register_members(place)
        experiment_control.start(api, chosen)
        typer.echo(f"experiment {chosen.id} goes on", err=True)
    if detach:
        _say_how_to_follow(chosen.id, json_output)
        return
    _follow(place, chosen, json_output)


def stop(experiment: Id = None, study: Folder = HERE) -> None:
    """Stop an experiment; it can be resumed."""
    with _told_of_runs():
        place = open_study(study)
        from server_app.experiment import experiment_control
        from server_app.study.registration import control

        api = control(place)
        chosen = experiment_control.pick(place, experiment)
        was_running = experiment_control.stop(place, api, chosen)
    if was_running:
        typer.echo(f"{chosen.id} is stopped; `feddc coordinator resume` goes on where it stands.")
    else:
        typer.echo(f"{chosen.id} was not running.")


def status(study: Folder = HERE, json_output: Json = False) -> None:
    """Show the study: its services, which hospitals are connected, where experiments stand."""
    with _told_of_runs():
        place = open_study(study)
        from .overview import overview, show

        seen = overview(place)
    if json_output:
        typer.echo(json.dumps(seen))
    else:
        show(seen, console())


def _follow(place: "Study", experiment: "Experiment", json_output: bool) -> None:
    from server_app.experiment.flower_runs import flower_runs
    from server_app.experiment.follower import Outcome

    runs = flower_runs(experiment.folder)
    if not runs:
        fail(2, f"the experiment {experiment.id} was never started: `feddc coordinator resume`")
    outcome = Outcome(False)
    with _told_of_runs():
        try:
            outcome = _watch(place, experiment, runs[-1])
        except _LeftAlone:
            typer.echo(
                f"\n{experiment.id} goes on without you: `feddc coordinator follow`, or `stop`.",
                err=True,
            )
            raise typer.Exit(130) from None
    _tell_outcome(place, experiment, outcome.completed, outcome.reason, json_output)


def _watch(place: "Study", experiment: "Experiment", run: "FlowerRun") -> "Any":
    from server_app.experiment.follower import follow as follow_run
    from server_app.experiment.live_view import watched
    from server_app.study.registration import control

    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    with _ctrl_c_leaves(), watched(errors) as display:
        return follow_run(
            place,
            control(place),
            experiment,
            run,
            on_event=display.event,
            on_nodes=lambda nodes: display.nodes(list(nodes)),
        )


def _tell_outcome(
    place: "Study", experiment: "Experiment", completed: bool, reason: str, json_output: bool
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
        typer.echo(json.dumps(outcome | ({"reason": reason} if reason else {}) | summary))
    elif completed:
        console().print(closing_table(summary, experiment.folder))
    if not completed:
        if (experiment.folder / AGGREGATE).exists():
            start = f"`feddc coordinator run --from {experiment.id}`"
            typer.echo(
                f"its last aggregate can be the start of a new experiment: {start}", err=True
            )
        logs = f"{experiment.log} and {place.logs}" if experiment.log.exists() else place.logs
        fail(1, f"{experiment.id}: {reason}; logs: {logs}")


def _say_how_to_follow(name: str, json_output: bool) -> None:
    if json_output:
        typer.echo(json.dumps({"experiment": name, "status": "running"}))
    else:
        typer.echo(f"{name} is running: `feddc coordinator follow`, or `stop`.")


def _check_roster(place: "Study") -> None:
    from server_app.study.study_members import is_roster_current

    place.roster()
    if not is_roster_current(place):
        fail(2, "the members have changed since the last roster: `feddc coordinator roster`")


@contextmanager
def _told_of_runs() -> Iterator[None]:
    with told():
        try:
            yield
        except Exception as error:
            # Only now: what raises these has imported their packages already.
            from learning.data import DataError
            from learning.models import ModelError
            from server_app.experiment.experiment_control import RunError

            if isinstance(error, RunError):
                fail(1, str(error))
            if isinstance(error, DataError | ModelError):
                fail(2, str(error))
            raise


@contextmanager
def _ctrl_c_leaves() -> Iterator[None]:
    def leave(number: int, frame: object) -> None:
        raise _LeftAlone

    with signals.caught(leave, (signals.SIGINT,)):
        yield
