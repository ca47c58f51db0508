"""`feddc lab list`: the experiments by name, and whether their data are available."""

import json

import typer
from rich.console import Console
from rich.table import Table

from lab.experiments import ablation_names, experiment_names, load_experiment
from lab.experiments.readiness import state


def show_list(*, json_output: bool) -> None:
    """Print the experiments of the paper, then the ablations."""
    kinds = {
        "the paper's": [load_experiment(name) for name in experiment_names()],
        "our ablations": [load_experiment(name) for name in ablation_names()],
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
            for kind, experiments in kinds.items()
            for one in experiments
        ]
        typer.echo(json.dumps(lines, ensure_ascii=False))
        return
    console = Console()
    for kind, experiments in kinds.items():
        table = Table("name", "title", "source", "state", title=kind, title_justify="left")
        for one in experiments:
            table.add_row(one.name, one.title, one.source, state(one))
        console.print(table)
    console.print(
        "Run one with `feddc lab run NAME`; `feddc lab data` shows the state of the data."
    )
