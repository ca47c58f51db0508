"""Commands to decide on experiments: `experiments`, `approve`, `reject`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from operation.terminal import counted, echo

from . import completion
from .shared import DEFAULT_FOLDER, Folder, exit_on_error, require_agents_user

if TYPE_CHECKING:
    from client_app.hospital_folder import HospitalFolder
    from client_app.state.asked_experiments import AskedExperiment
    from client_app.state.decisions import Decision

Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id of the experiment.", autocompletion=completion.asked),
]
Fingerprint = Annotated[
    str | None,
    typer.Option(help="Do not ask if the experiment has this fingerprint, as `experiments` shows."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def experiments(
    folder: Folder = DEFAULT_FOLDER,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """List experiments and what each asks for: waiting, approved, running, rejected, closed."""
    from client_app.hospital_folder import HospitalFolder
    from client_app.state.asked_experiments import asked_experiments

    place = HospitalFolder(folder)
    with exit_on_error():
        found = asked_experiments(place)
        metrics = _metrics(place)
    if json_output:
        echo(json.dumps([one.as_dict() | {"disclosed": metrics} for one in found]))
        return
    for one in found:
        echo(_text(one, metrics) + "\n")
    waiting = [one.experiment for one in found if one.state == "waiting"]
    if not found:
        echo("No coordinator has asked for an experiment yet.")
    elif waiting:
        echo(
            f"{counted(len(waiting), 'experiment')} waiting: `feddc hospital approve ID`, or "
            "`feddc hospital reject ID`."
        )


def approve(
    experiment: Id,
    folder: Folder = DEFAULT_FOLDER,
    fingerprint: Fingerprint = None,
    yes: Yes = False,
) -> None:
    """Let an experiment begin; covers resumed runs and new members, but no other settings."""
    _decide(folder, experiment, fingerprint, "approved", "Approve this experiment?", yes=yes)
    echo(f"{experiment} is approved: it begins when the coordinator asks again.")


def reject(
    experiment: Id,
    folder: Folder = DEFAULT_FOLDER,
    fingerprint: Fingerprint = None,
    yes: Yes = False,
) -> None:
    """Refuse an experiment, or end this hospital's part in a running one."""
    _decide(folder, experiment, fingerprint, "rejected", "Reject this experiment?", yes=yes)
    echo(f"{experiment} is rejected; the coordinator gets this answer when it asks again.")


def _decide(
    folder: Folder,
    experiment: str,
    fingerprint: str | None,
    decision: "Decision",
    question: str,
    *,
    yes: bool,
) -> None:
    from client_app.hospital_folder import HospitalFolder
    from client_app.state.asked_experiments import choose
    from client_app.state.decisions import DecisionFile

    place = HospitalFolder(folder)
    with exit_on_error():
        require_agents_user(place.state)
        chosen = choose(place, experiment, fingerprint)
        echo(_text(chosen, _metrics(place)) + "\n")
    if fingerprint is None and not yes:
        typer.confirm(question, abort=True)
    with exit_on_error():
        # The decision is on what was shown, whatever has been asked for meanwhile.
        DecisionFile(place.decisions_file).record(experiment, chosen.fingerprint, decision)


def _metrics(place: "HospitalFolder") -> list[str]:
    from client_app.configuration import Configuration

    return list(Configuration.read(place.configuration).policy.metrics)


def _text(experiment: "AskedExperiment", metrics: list[str]) -> str:
    from .experiment_text import experiment_text

    return experiment_text(experiment, metrics)
