"""Commands to run a hospital: `serve`, `connect`, `audit`, `reset`."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from operation import terminal
from operation.log_lines import LineLimit, TimedLine
from operation.terminal import activity, console, echo, fail

from .shared import DEFAULT_FOLDER, Folder, exit_on_error, require_folder

_LOG_LINES_PER_MINUTE = 600


def serve(folder: Folder = DEFAULT_FOLDER) -> None:
    """Run the agent: answer requests on the socket until stopped."""
    from client_app.agent.process import serve as run
    from client_app.check.essentials import check_essentials
    from client_app.configuration import Configuration
    from client_app.hospital_folder import HospitalFolder

    output = logging.StreamHandler()
    output.setFormatter(TimedLine())
    output.addFilter(LineLimit(_LOG_LINES_PER_MINUTE))  # a hostile courier must not fill the disk
    logging.basicConfig(level=logging.INFO, handlers=[output])
    place = HospitalFolder(folder)
    with exit_on_error():
        configuration = Configuration.read(place.configuration)
        wrong = False
        for finding in check_essentials(place, configuration):
            if finding.verdict != "fine":
                echo(f"{finding.subject}: {finding.text} → {finding.remedy}", err=True)
            wrong = wrong or finding.verdict == "wrong"
        if wrong:
            fail(2, "the agent can't start: correct the above and run `feddc hospital check`")
        roster = place.roster()
        assert roster is not None  # noqa: S101 (one of the essentials)
        run(place, configuration, roster)


def connect(
    folder: Folder = DEFAULT_FOLDER,
    coordinator: Annotated[
        Path | None,
        typer.Option(
            help="File with the coordinator's address and certificate.",
            show_default="the one that `join` stored",
        ),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(help="The agent's socket.", show_default="as in hospital.toml"),
    ] = None,
    via_socket: Annotated[
        Path | None,
        typer.Option(metavar="SOCKET", help="Forwarder socket, for hosts without network."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Log file, in JSON lines.", show_default="transport/connect.jsonl"),
    ] = None,
) -> None:
    """Connect the agent to the coordinator: run Flower's SuperNode until stopped."""
    from client_app.connect.supernode import ConnectError, keep_connected
    from client_app.hospital_folder import FolderError, HospitalFolder

    # Not the shared list of errors: the SuperNode's machine need not have torch installed.
    with terminal.exit_on_error(ConnectError, FolderError, user="the courier's user"):
        number = keep_connected(HospitalFolder(folder), coordinator, socket, via_socket, log)
    raise typer.Exit(0 if number else 1)


def audit(
    folder: Folder = DEFAULT_FOLDER,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the lines as they are stored.")
    ] = False,
) -> None:
    """Show and verify the log of all requests and replies."""
    from client_app.hospital_folder import HospitalFolder
    from client_app.state.audit_report import audit_table, models_sent, read_audit

    require_folder(folder)
    with exit_on_error(), activity("verifying the audit log", quiet=json_output):
        lines, verdict = read_audit(HospitalFolder(folder))
    if json_output:
        for line in lines:
            echo(line.decode(errors="backslashreplace"))
    else:
        console().print(audit_table(lines))
        for recipient, count in models_sent(lines).items():
            echo(f"models sent to {recipient}: {count}")
    if verdict.broken is not None:
        fail(1, f"the log is broken: line {verdict.broken} {verdict.reason}")
    echo(f"{verdict.entries} lines, complete and in order.", err=json_output)


def reset(
    folder: Folder = DEFAULT_FOLDER,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Destroy the keys and state of all experiments, so that a stopped agent can serve again."""
    from client_app.hospital_folder import HospitalFolder
    from client_app.state.decisions import DecisionFile
    from client_app.state.privacy.ledger_file import open_ledger_file
    from client_app.state.reset import reset_experiments
    from client_app.state.sqlite_store import SqliteStore

    place = HospitalFolder(folder)
    if not yes:
        typer.confirm(
            "Running experiments will continue without this hospital. Remove all experiments here?",
            abort=True,
        )
    with exit_on_error():
        identity = place.identity()
        store = SqliteStore(place.store_file)
        try:
            reset_experiments(store, identity, open_ledger_file(place.privacy_ledger_file))
            DecisionFile(place.decisions_file).clear()
        finally:
            store.close()
    echo(
        "All experiments and approvals were removed; identity, roster, audit log and privacy "
        "ledger are unchanged."
    )
