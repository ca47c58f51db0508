"""`feddc lab list`: the experiments by name, and whether their data are available."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click
import typer
from rich.console import Console
from rich.table import Table

from lab.commands.run_command import screen
from lab.experiments import (
    Experiment,
    ExperimentError,
    ablation_names,
    experiment_names,
    load_experiment,
)
from lab.experiments.readiness import READY, state

_PARTLY = f"{READY} in part"


@dataclass(frozen=True)
class Line:
    """One experiment in the list."""

    name: str
    kind: str
    title: str
    source: str
    state: str


def show_list(names: list[str], *, long: bool, json_output: bool) -> None:
    """Print a line for each experiment; all that is known of it with its name or with `long`."""
    lines = list(_lines(names))
    if json_output:
        typer.echo(json.dumps([asdict(line) for line in lines], ensure_ascii=False))
    elif names or long:
        _print_long(lines, screen())
    else:
        _print_short(lines, Console(highlight=False))


def _lines(names: list[str]) -> Iterator[Line]:
    try:
        wanted = [load_experiment(name) for name in dict.fromkeys(names)]
    except ExperimentError as error:
        raise click.UsageError(str(error)) from error
    paper = experiment_names()
    for one in wanted or [load_experiment(name) for name in (*paper, *ablation_names())]:
        yield _line(one, "the paper's" if one.name in paper else "our ablations")


def _line(one: Experiment, kind: str) -> Line:
    return Line(one.name, kind, one.title, one.source, state(one))


def _print_short(lines: list[Line], console: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    name, state = max(len(line.name) for line in lines), len(_PARTLY)
    table.add_column(no_wrap=True, width=name)
    # Titles are what is cut off if need be.
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=console.width - name - state - 6)
    table.add_column(no_wrap=True, width=state)
    kind = ""
    for line in lines:
        if line.kind != kind:
            kind = line.kind
            table.add_row(f"[bold]{kind}[/bold]")
        table.add_row(line.name, line.title, _short(line.state))
    console.print(table)
    console.print("`feddc lab list NAME` tells more, `feddc lab run NAME` runs it.")


def _print_long(lines: list[Line], console: Console) -> None:
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for line in lines:
        table.add_row(line.name, line.title)
        for title, text in (("", line.source), ("", line.state)):
            table.add_row(title, text)
        table.add_row()
    console.print(table)


def _short(state: str) -> str:
    """Leave out where to get the data: it would fill several lines of each row."""
    if state.startswith(READY):
        return READY
    return _PARTLY if f" {READY}" in state else "needs data"
