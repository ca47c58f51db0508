"""`feddc lab list`: the experiments by name, and whether their data are there."""

import json

import typer
from rich.console import Console
from rich.table import Table

from lab.experiments import experiment_names, load_experiment, study_names
from lab.experiments.readiness import state


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
