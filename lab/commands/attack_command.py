"""`feddc lab attack`: what a curious hospital learns from a hand-over, with and without noise."""

import json
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from lab.attack.report import attack
from lab.commands.run_command import screen
from operation.terminal import activity, percent

_ATTACKS = {"loss": "loss of the received model", "update": "direction of the update"}


def show_attack(*, picture: Path, json_output: bool) -> None:
    """Run the attacks and print their results."""
    with activity("training the study that is attacked", quiet=json_output) as now:
        results = attack(picture, on_step=now)
    if json_output:
        typer.echo(json.dumps(results))
        return
    console = screen()
    console.print(_membership(results))
    console.print(_reconstruction(results))
    _remarks(console, results)


def _membership(results: dict[str, Any]) -> Table:
    made = Table(
        title="Was this record trained on? True-positive rate with 95 % interval",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    made.add_column("ε", justify="right")
    made.add_column("accuracy", justify="right")
    made.add_column("attack by")
    for rate in ("0.1", "0.01"):
        made.add_column(f"at false-positive\nrate {rate}", justify="right")
    made.add_column("advantage", justify="right")
    for each in results["membership"]:
        for one in each["attacks"]:
            rates = [
                f"{value['rate']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
                for value in one["true_positives"].values()
            ]
            accuracy = percent(each["accuracy"])
            name = _ATTACKS[one["attack"]]
            made.add_row(
                _epsilon(each["epsilon"]), accuracy, name, *rates, f"{one['advantage']:.2f}"
            )
    return made


def _reconstruction(results: dict[str, Any]) -> Table:
    made = Table(
        title="Records computed from the first hand-over",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("ε", "batch", "records", "reconstructed"):
        made.add_column(column, justify="right")
    for each in results["reconstruction"]:
        share = percent(each["reconstructed"], digits=0)
        made.add_row(_epsilon(each["epsilon"]), str(each["batch"]), str(each["records"]), share)
    return made


def _remarks(console: Console, results: dict[str, Any]) -> None:
    console.print(
        f"The attacker has {results['own_records']} records of its own. ε is what a patient spends "
        f"over the whole training at δ = {results['delta']:g}; – is without noise. Records beside "
        f"their reconstructions: {results['picture']}. {results['seconds']:.0f} s.",
        style="dim",
        highlight=False,
    )


def _epsilon(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
