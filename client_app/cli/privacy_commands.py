"""The command to see what patients' privacy has cost so far: `ledger`."""

import json
from typing import Annotated

import typer

from operation.runs.event_file import finite
from operation.terminal import activity, console, counted, echo, fail

from .shared import DEFAULT_FOLDER, Folder, exit_on_error


def ledger(
    folder: Folder = DEFAULT_FOLDER,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Show ε of every experiment and of all together, over the hospital's whole history."""
    from client_app.configuration import Configuration
    from client_app.hospital_folder import HospitalFolder
    from client_app.state.privacy.ledger_report import ledger_table, read_ledger

    place = HospitalFolder(folder)
    with exit_on_error():
        policy = Configuration.read(place.configuration).policy
        with activity("adding up the ledger", quiet=json_output):
            report = read_ledger(place, policy.delta)
    if json_output:
        found = report.as_dict() | {"max_epsilon": policy.max_epsilon or None}
        echo(json.dumps(finite(found)))  # JSON has no infinity: null
    else:
        console().print(ledger_table(report))
        limit = f" of at most {policy.max_epsilon:g}" if policy.max_epsilon else ", without a limit"
        echo(f"All releases with noise: ε = {report.epsilon:.4g}{limit} (δ = {policy.delta:g}).")
        if report.without_noise:
            echo(
                f"{counted(report.without_noise, 'leg')} left without noise: no ε holds for "
                "patients who were in the data then."
            )
    if report.problem:
        fail(1, report.problem)
