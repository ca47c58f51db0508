"""`feddc lab run`: experiments from their names to tables, results.json and plots."""

import json
import time
from pathlib import Path
from typing import get_args

import click
import typer
from rich.console import Console

from lab.engine import leg_by_leg
from lab.experiments import ExperimentError, SettingName, load_experiment
from lab.experiments.own_data import own_data
from lab.list_command import check_ready
from lab.results.curves import curves
from lab.results.plots import draw
from lab.results.result import results
from lab.results.table import show
from lab.sweep import Plan, Request, RunFolder, Stopped, sweep
from lab.sweep.pool import SweepFailed
from lab.sweep.sweep import left
from lab.sweep.watching import watching
from learning.data import DataError
from learning.settings import SettingsError
from server_app.settings_line import assigned


def requests_of(
    names: list[str],
    *,
    setting: str,
    methods: str,
    seeds: int | None,
    dataset: str | None,
    hospitals: int | None,
    samples: int | None,
    assignments: list[str] | None,
    run_dir: Path | None,
) -> list[Request]:
    """Return what the options ask for; what is wrong with them is said in one line."""
    if setting not in get_args(SettingName):
        raise click.UsageError(f"--setting must be laptop or full, got {setting!r}")
    only = tuple(name.strip() for name in methods.split(",") if name.strip())
    try:
        if dataset is not None:
            if names:
                raise click.UsageError("give the names of experiments or --dataset, not both")
            values = assigned(assignments)
            experiments = [own_data(dataset, hospitals, samples, values)]
        elif not names:
            raise click.UsageError("name an experiment (feddc lab list) or give --dataset")
        elif hospitals or samples or assignments:
            raise click.UsageError("--hospitals, --samples and --set belong to --dataset")
        else:
            experiments = [load_experiment(name) for name in dict.fromkeys(names)]
        if run_dir is not None and len(experiments) > 1:
            raise click.UsageError("--run-dir is for one experiment at a time")
        size: SettingName = "full" if setting == "full" else "laptop"
        return [Request(experiment, size, only, seeds) for experiment in experiments]
    except (ExperimentError, SettingsError, DataError) as error:
        raise click.UsageError(str(error)) from error


def run_all(
    requests: list[Request], *, run_dir: Path | None, workers: int | None, json_output: bool
) -> int:
    """Run the comparisons one after the other; return the exit code."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    folder: RunFolder | None = None
    made = []
    try:
        plans = [Plan(request) for request in requests]
        for plan in plans:
            check_ready(plan.experiment)
            _check(plan)
        with watching(errors) as watch, leg_by_leg() as stop:
            for plan in plans:
                watch.expect(plan, *left(plan, {}))
            for plan in plans:
                folder = RunFolder.for_request(plan.request, run_dir)
                began = time.monotonic()
                sweep(plan, folder, watcher=watch, stop=stop, workers=workers)
                made.append(write(plan, folder, time.monotonic() - began))
    except (ExperimentError, SettingsError) as error:
        typer.echo(f"feddc: {error}", err=True)
        return 2
    except SweepFailed as failure:
        typer.echo(f"feddc: {failure}", err=True)
        return 2 if failure.is_input else 1
    except Stopped:
        assert folder is not None  # noqa: S101 (it is made before anything can be stopped)
        done = len(folder.records())
        typer.echo(
            f"feddc: stopped; {done} trainings are kept in {folder.path}, and the same command "
            "goes on from there",
            err=True,
        )
        return 130
    _tell(made, json_output=json_output)
    return 0


def write(plan: Plan, folder: RunFolder, seconds: float) -> RunFolder:
    """Write results.json, curves.json and the plots of a comparison that is complete."""
    records = folder.records()
    earlier = folder.read("results.json")["seconds"] if folder.results_path.exists() else 0.0
    found = results(plan, records, seconds + earlier)
    lines = curves(plan, records)
    folder.write("curves.json", {"curves": lines})
    draw(found, lines, folder.path)
    folder.write("results.json", found)
    folder.clear_checkpoints()
    return folder


def screen() -> Console:
    """Return a console on which tables are whole: a file has no width to keep to."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _check(plan: Plan) -> None:
    """Have all settings checked before anything is trained."""
    for cell in plan.cells:
        for trial in (
            plan.candidate(cell, plan.seeds[0], plan.rates(cell)[0]),
            plan.final(cell, plan.seeds[0], plan.rates(cell)[0]),
        ):
            _ = trial.settings


def _tell(made: list[RunFolder], *, json_output: bool) -> None:
    if json_output:
        typer.echo(
            json.dumps(
                [folder.read("results.json") | {"run_dir": str(folder.path)} for folder in made]
            )
        )
        return
    console = screen()
    for folder in made:
        show(console, folder.read("results.json"))
        files = sorted(path.name for path in folder.path.iterdir() if path.is_file())
        console.print(f"{folder.path}: {', '.join(files)}\n", highlight=False, soft_wrap=True)
