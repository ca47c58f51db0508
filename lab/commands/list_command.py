"""`feddc lab list`: the experiments by name, and whether their data are available."""

import json
import re

import typer
from rich.box import SIMPLE_HEAD
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
        table = Table(title=kind, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("name", no_wrap=True)
        for column in ("title", "source", "state"):
            table.add_column(column)
        for one in experiments:
            table.add_row(one.name, one.title, one.source.partition(";")[0], _short(state(one)))
        console.print(table)
    console.print(
        "Run one with `feddc lab run NAME`; `feddc lab data` shows where to get missing data."
    )


def _short(state: str) -> str:
    """Leave out where to get the data: it would fill several lines of each row."""
    return re.sub(r"needs \$FEDDC_DATA[^;]*", "needs data", state)
