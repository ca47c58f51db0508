"""`feddc lab advise`: settings to start with, and the reasons."""

import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.table import Table

from lab.advise import Advice, Case, advise


def show_advice(case: Case, *, json_output: bool) -> None:
    """Print the advice as a table, or as one JSON line."""
    advice = advise(case)
    if json_output:
        typer.echo(json.dumps(asdict(advice), ensure_ascii=False))
        return
    console = Console()
    console.print(_table(advice))
    for warning in advice.warnings:
        console.print(f"- {warning}", highlight=False)
    console.print(
        "Based on the small ablations in docs/when-it-helps.md. Compare on your own kind of data "
        "with `feddc lab run --dataset …`.",
        highlight=False,
    )


def _table(advice: Advice) -> Table:
    table = Table("setting", "value", "why", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in advice.settings.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        table.add_row(name, shown, advice.reasons[name])
    return table
