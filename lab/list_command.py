"""`feddc lab list`: the experiments by name, and whether their data are there."""

import json

import typer
from rich.console import Console
from rich.table import Table

from lab.experiments import (
    Experiment,
    ExperimentError,
    experiment_names,
    load_experiment,
    study_names,
)
from learning.data.sources import SOURCES, default_folder

READY = "ready"


def show_list(*, json_output: bool) -> None:
    """Print the experiments of the paper, then the studies."""
    shelves = {
        "the paper's": [load_experiment(name) for name in experiment_names()],
        "our studies": [load_experiment(name) for name in study_names()],
    }
    if json_output:
        lines = [
            {
                "name": one.name,
                "kind": kind,
                "title": one.title,
                "source": one.source,
                "state": state(one),
            }
            for kind, experiments in shelves.items()
            for one in experiments
        ]
        typer.echo(json.dumps(lines, ensure_ascii=False))
        return
    console = Console()
    for kind, experiments in shelves.items():
        table = Table("name", "what", "where from", "state", title=kind, title_justify="left")
        for one in experiments:
            table.add_row(one.name, one.title, one.source, state(one))
        console.print(table)
    console.print("Run one with `feddc lab run NAME`; `feddc lab data` says more about the data.")


def state(experiment: Experiment) -> str:
    """Say whether it can be run here; files are looked for, not read."""
    if experiment.needs:
        return experiment.needs
    dataset = str(experiment.settings.get("dataset", "digits"))
    if dataset not in SOURCES:
        return READY
    folder = default_folder(dataset)
    if experiment.settings.get("data-dir") or (folder is not None and folder.is_dir()):
        return READY
    source = SOURCES[dataset]
    missing = f"needs $FEDDC_DATA/{source.default}/ from {source.publisher}"
    return f"{missing}; {experiment.stand_in} needs no files" if experiment.stand_in else missing


def check_ready(experiment: Experiment) -> None:
    """Say what is missing before anything is started."""
    if (found := state(experiment)) != READY:
        raise ExperimentError(f"{experiment.name}: {found}")
