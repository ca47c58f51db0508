"""`feddc lab compare`: several finished runs side by side."""

import json
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from lab.experiments import ExperimentError
from lab.results.row import Row, rows_of
from lab.results.text import spread_text
from lab.sweep import RunFolder
from operation.runs.event_file import FILE_NAME
from server_app.pages.run_view import RunRecord, public_view


def compare(runs: list[Path], console: Console, *, json_output: bool) -> int:
    """Print a row for each method and a column for each run."""
    if all((run / FILE_NAME).is_file() for run in runs):
        return _compare_simulations(runs, console, json_output=json_output)
    try:
        found = {str(run): RunFolder.open(run).results() for run in runs}
        table = _table(found)
    except ExperimentError as error:
        typer.echo(f"feddc: {error}", err=True)
        return 2
    if json_output:
        typer.echo(json.dumps(found))
        return 0
    console.print(table)
    for line in _differences(found):
        console.print(line, highlight=False)
    return 0


def _compare_simulations(runs: list[Path], console: Console, *, json_output: bool) -> int:
    """Print a row for each run of `feddc simulate`, and the settings in which they differ."""
    records = {str(run): RunRecord.read(run) for run in runs}
    if json_output:
        lines = {name: one.summary | {"settings": one.settings} for name, one in records.items()}
        typer.echo(json.dumps(lines))
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("run", overflow="fold")
    for column in ("method", "state", "test accuracy", "sent"):
        table.add_column(column, no_wrap=True)
    for name, one in records.items():
        view = public_view(one)
        facts = dict(view["facts"])
        table.add_row(
            name, view["method"], view["state"], facts.get("test accuracy", "–"),
            facts.get("sent", "–"),
        )  # fmt: skip
    console.print(table)
    for line in _differences({name: {"settings": one.settings} for name, one in records.items()}):
        if not line.startswith("run-dir:"):
            console.print(line, highlight=False)
    return 0


def _table(found: dict[str, dict[str, Any]]) -> Table:
    table = Table(
        title="test accuracy in %, mean over seeds ± largest deviation",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("experiment", "in", "method"):
        table.add_column(column)
    for name, results in found.items():
        seeds = len(results["seeds"])
        size = f"{results['preset']}, {seeds} seed{'s' if seeds > 1 else ''}"
        table.add_column(f"{name}\n{size}", justify="right")
    table.add_column("paper", justify="right")
    cells: dict[tuple[str, str, str], dict[str, Row]] = {}
    for name, results in found.items():
        for row in rows_of(results):
            key = (results["experiment"], row.variant, row.method)
            cells.setdefault(key, {})[name] = row
    for (experiment, variant, _), rows in cells.items():
        some = next(iter(rows.values()))
        table.add_row(
            experiment,
            variant,
            some.label,
            *(
                spread_text(rows[name].headline, rows[name]) if name in rows else "–"
                for name in found
            ),
            "–" if some.paper is None else f"{some.paper:g}",
        )
    return table


def _differences(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return one line for each setting in which the runs differ."""
    lines = []
    for key in sorted({key for results in found.values() for key in results["settings"]}):
        values = {name: results["settings"].get(key, "–") for name, results in found.items()}
        if len({str(value) for value in values.values()}) > 1:
            shown = ", ".join(f"{value} in {name}" for name, value in values.items())
            lines.append(f"{key}: {shown}")
    return lines
