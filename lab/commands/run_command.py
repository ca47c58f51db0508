"""`feddc lab run`: run experiments by name; print tables, write results, plots and a report."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import cast, get_args

import click
import typer
from rich.console import Console

from lab.engine import leg_by_leg
from lab.experiments import ExperimentError, PresetName, load_experiment
from lab.experiments.own_data import own_data
from lab.results.plots.communication_plot import draw
from lab.results.plots.curves import curves
from lab.results.plots.report_page import report_page
from lab.results.result import results
from lab.results.table import show
from lab.sweep import Record, Request, RunFolder, Stopped, SweepPlan, sweep
from lab.sweep.pool import INPUT_ERRORS, SweepFailed
from lab.sweep.ray_pool import ray_pool
from lab.sweep.ready import ready
from lab.sweep.sweep import left
from lab.sweep.sweep_progress import shown_progress
from operation import files
from operation.set_options import parse_set_options
from operation.terminal import activity
from server_app.pages.report import PUBLIC


def requests_of(
    names: list[str],
    *,
    preset: str,
    methods: str | None,
    seeds: int | None,
    dataset: str | None,
    hospitals: int | None,
    examples: int | None,
    assignments: list[str] | None,
    run_dir: Path | None,
) -> list[Request]:
    """Build the requests from the options; wrong options are usage errors."""
    if preset not in get_args(PresetName):
        raise click.UsageError(f"--preset must be laptop, desk or full, got {preset!r}")
    only = tuple(name.strip() for name in (methods or "").split(",") if name.strip())
    if methods is not None and not only:
        raise click.UsageError("--methods is empty: leave it out to compare all")
    try:
        if dataset is not None:
            if names:
                raise click.UsageError("give the names of experiments or --dataset, not both")
            values = parse_set_options(assignments)
            experiments = [own_data(dataset, hospitals, examples, values)]
        elif not names:
            raise click.UsageError("name an experiment (feddc lab list) or give --dataset")
        elif hospitals or examples or assignments:
            raise click.UsageError("--hospitals, --examples and --set belong to --dataset")
        else:
            experiments = [load_experiment(name) for name in dict.fromkeys(names)]
        if run_dir is not None and len(experiments) > 1:
            raise click.UsageError("--run-dir is for one experiment at a time")
        name = cast(PresetName, preset)
        for experiment in experiments:
            experiment.preset(name)
        return [Request(experiment, name, only, seeds) for experiment in experiments]
    except (ExperimentError, *INPUT_ERRORS) as error:
        raise click.UsageError(str(error)) from error


def run_all(
    requests: list[Request],
    *,
    run_dir: Path | None,
    workers: int | None,
    json_output: bool,
    ray: str | None = None,
) -> int:
    """Run the comparisons one after the other; return the exit code."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    folder: RunFolder | None = None
    made = []
    try:
        with activity("checking data and networks", quiet=json_output):
            plans = [ready(request) for request in requests]
        with (
            shown_progress(errors) as watch,
            leg_by_leg() as stop,
            ray_pool(ray) if ray else nullcontext() as cluster,
        ):
            if cluster is not None:
                for plan in plans:
                    cluster.check(plan)
            for plan in plans:
                watch.expect(plan, *left(plan, {}))
            for plan in plans:
                folder = RunFolder.for_request(plan.request, run_dir)
                with folder.used_for(plan.request):
                    sweep(plan, folder, watcher=watch, stop=stop, workers=workers, cluster=cluster)
                    made.append(write(plan, folder))
    except (ExperimentError, *INPUT_ERRORS) as error:
        typer.echo(f"feddc: {error}", err=True)
        return 2
    except SweepFailed as failure:
        kept = f"; finished trainings are in {folder.path}" if folder and folder.records() else ""
        typer.echo(f"feddc: {failure}{kept}", err=True)
        return 2 if failure.is_input else 1
    except Stopped:
        assert folder is not None  # noqa: S101 (it is made before anything can be stopped)
        done = len(folder.records())
        typer.echo(
            f"feddc: stopped; {done} trainings are saved in {folder.path}: run the same command "
            "again to continue",
            err=True,
        )
        return 130
    _print_results(made, json_output=json_output)
    return 0


def write(plan: SweepPlan, folder: RunFolder) -> RunFolder:
    """Write results.json, curves.json, the plots and the report of a complete comparison."""
    every = folder.records()
    records = plan.own(every)
    found = results(plan, records, folder.seconds * _fraction(records, every))
    lines = curves(plan, records)
    folder.write("curves.json", {"curves": lines})
    draw(found, lines, folder.path)
    files.replace(folder.path / PUBLIC, report_page(found).encode())
    folder.write("results.json", found)
    folder.clear_checkpoints()
    return folder


def _fraction(own: Mapping[str, Record], every: Mapping[str, Record]) -> float:
    """Return the fraction of a folder's training time that these trainings took."""
    of_all = sum(record.seconds for record in every.values())
    return sum(record.seconds for record in own.values()) / of_all if of_all else 1.0


def screen() -> Console:
    """Return a console that is wide enough for tables when the output goes to a file."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _print_results(made: list[RunFolder], *, json_output: bool) -> None:
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
        names = sorted(path.name for path in folder.path.glob("[!.]*") if path.is_file())
        console.print(f"{folder.path}: {', '.join(names)}\n", highlight=False, soft_wrap=True)
