"""`feddc coordinator run`, `follow`, `status`, `resume`, `stop`: experiments from start to end."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operation.terminal import activity, console, echo, fail

from . import completion
from .foreground import follow_to_end
from .shared import DEFAULT_FOLDER, Folder, exit_on_experiment_error, open_study

if TYPE_CHECKING:
    from operation.config import Scalar
    from server_app.study.study_folder import Study

Id = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]",
        help="Id of the experiment; default: the latest.",
        autocompletion=completion.experiments,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON line.")]
Detach = Annotated[bool, typer.Option("--detach", help="Start it without following it.")]


def run(
    study: Folder = DEFAULT_FOLDER,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override settings.toml; repeatable.",
            autocompletion=completion.settings,
        ),
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
            help="Start from an experiment's last aggregate, or from a .safetensors file.",
            autocompletion=completion.experiments,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and start nothing.")
    ] = False,
    detach: Detach = False,
    json_output: Json = False,
) -> None:
    """Start an experiment with the members of the roster, and follow it to its end."""
    from operation.set_options import parse_set_options
    from server_app.config.task_settings import located

    with exit_on_experiment_error():
        place = open_study(study)
        values = place.settings() | located(parse_set_options(settings), Path.cwd())
        _check_roster(place)
        if dry_run:
            _print_forecast(place, values, json_output)
            return
        with activity("starting the experiment", quiet=json_output):
            # Imported only now: Flower takes a second or two.
            from server_app.experiment import experiment_control, first_model
            from server_app.experiment.experiment_folder import ExperimentFolder
            from server_app.study.registration import control, register_members

            model = None if begin_with is None else first_model.find(place, begin_with)
            api = control(place)
            experiment_control.check_nothing_runs(place, api)
            register_members(place)
            experiment = ExperimentFolder.create(place, values, seed=seed, begin_with=model)
            experiment_control.start(api, experiment)
        echo(f"experiment {experiment.id}, in {experiment.folder}", err=True)
    if detach:
        _print_running(experiment.id, json_output)
    else:
        follow_to_end(place, experiment, json_output)


def follow(
    experiment: Id = None, study: Folder = DEFAULT_FOLDER, json_output: Json = False
) -> None:
    """Follow a running experiment."""
    with exit_on_experiment_error():
        place = open_study(study)
        from server_app.experiment import experiment_control

        chosen = experiment_control.pick(place, experiment)
    follow_to_end(place, chosen, json_output)


def resume(
    experiment: Id = None,
    study: Folder = DEFAULT_FOLDER,
    detach: Detach = False,
    json_output: Json = False,
) -> None:
    """Continue an interrupted experiment from its last completed leg."""
    with exit_on_experiment_error():
        place = open_study(study)
        with activity("asking the SuperLink", quiet=json_output):
            from server_app.experiment import experiment_control
            from server_app.study.registration import control, register_members

            api = control(place)
            chosen = experiment_control.pick(place, experiment)
        if chosen.is_complete:
            chosen.delete_routes()  # the run may have been killed just before it did so
            fail(2, f"the experiment {chosen.id} is complete; its results are in {chosen.folder}")
        with activity(f"starting {chosen.id} again", quiet=json_output):
            experiment_control.check_nothing_runs(place, api)
            # Flower may not know yet that its run ended.
            experiment_control.stop(place, api, chosen)
            register_members(place)
            experiment_control.start(api, chosen)
        echo(f"experiment {chosen.id} continues", err=True)
    if detach:
        _print_running(chosen.id, json_output)
    else:
        follow_to_end(place, chosen, json_output)


def stop(
    experiment: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Id of the experiment; default: the running one.",
            autocompletion=completion.experiments,
        ),
    ] = None,
    study: Folder = DEFAULT_FOLDER,
    json_output: Json = False,
) -> None:
    """Stop the running experiment; it can be resumed."""
    with exit_on_experiment_error():
        place = open_study(study)
        with activity("stopping the experiment", quiet=json_output):
            from server_app.experiment import experiment_control
            from server_app.study.registration import control

            api = control(place)
            if experiment is None:
                chosen = experiment_control.unfinished_experiments(place, api)
                if not chosen:  # one may be left over from an ended run
                    experiment_control.end_server_apps(place)
            else:
                chosen = [experiment_control.pick(place, experiment)]
            stopped = {one.id: experiment_control.stop(place, api, one) for one in chosen}
    if json_output:
        echo(json.dumps([{"experiment": name, "stopped": was} for name, was in stopped.items()]))
        return
    for name, was_running in stopped.items():
        if was_running:
            echo(f"{name} is stopped; continue it with `feddc coordinator resume {name}`.")
        else:
            echo(f"{name} was not running.")
    if not stopped:
        echo("No experiment is running.")


def status(study: Folder = DEFAULT_FOLDER, json_output: Json = False) -> None:
    """Show the study: services, connected hospitals, and the state of each experiment."""
    with exit_on_experiment_error():
        place = open_study(study)
        with activity("asking the SuperLink", quiet=json_output):
            from .overview import overview, show

            seen = overview(place)
    if json_output:
        echo(json.dumps(seen))
    else:
        show(seen, console())


def _print_forecast(place: "Study", values: "dict[str, Scalar]", json_output: bool) -> None:
    """Say what an experiment with these settings would do; no hospital is asked."""
    with activity("computing the forecast", quiet=json_output):
        # Imported only now: torch takes seconds.
        from server_app.config.study_task import load_task
        from server_app.experiment.dry_run import forecast, forecast_text
        from server_app.experiment.experiment_control import experiment_folders
        from server_app.experiment.experiment_folder import parse_for
        from server_app.experiment.policy_forecast import (
            begun_experiments,
            compare_policies,
            planned_experiment,
        )
        from server_app.study.study_members import enrolled

        settings, task_settings = parse_for(place, values)
        task, _ = load_task(task_settings, seed=0, codebook=place.codebook())
        folders = experiment_folders(place)
        begun = begun_experiments(folders, place.roster_file.read_bytes())
        announced = {card.name: card.policy for card in enrolled(place)}
        policies = compare_policies(announced, planned_experiment(settings, task, begun))
        found = forecast(settings, task, folders, policies)
    echo(json.dumps(found.as_dict()) if json_output else forecast_text(found))


def _print_running(name: str, json_output: bool) -> None:
    if json_output:
        echo(json.dumps({"experiment": name, "status": "running"}))
    else:
        echo(f"{name} is running: `feddc coordinator follow`, or `stop`.")


def _check_roster(study: "Study") -> None:
    from server_app.study.study_members import is_roster_current

    study.roster()
    if not is_roster_current(study):
        fail(
            2,
            "the members have changed since the last roster: sign a new one with "
            "`feddc coordinator roster`",
        )
