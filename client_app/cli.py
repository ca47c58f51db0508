"""`feddc hospital`: the commands of a hospital's IT and data people."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from operation.terminal import console, fail

if TYPE_CHECKING:
    from protocol.study.connection import Connection
    from protocol.study.roster import Roster

    from .hospital_folder import HospitalFolder

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[
    Path, typer.Option("--folder", help="The hospital's folder.", show_default="./hospital")
]
_HERE = Path("hospital")
_SIGNS = {"fine": "✓", "warning": "!", "wrong": "✗"}


@app.callback()
def hospital() -> None:
    """Take part in a study with your own data."""


@app.command()
def init(
    name: Annotated[str, typer.Option(help="This hospital, as all will call it.")],
    study: Annotated[str, typer.Option(help="The study, if it has a name yet.")] = "",
    group: Annotated[
        str,
        typer.Option(
            envvar="FEDDC_GROUP",
            help="Group of the agent's and the courier's user only: it may use the agent's socket "
            "and read the SuperNode's key.",
            show_default="the agent's own",
        ),
    ] = "",
    folder: Folder = _HERE,
) -> None:
    """Make this hospital's identity and configuration; print what to send to the coordinator."""
    from client_app.enrol.enrolment import initialise

    from .hospital_folder import HospitalFolder

    with _told():
        card, card_file = initialise(HospitalFolder(folder), name, study, group)
    typer.echo(card.to_json(), nl=False)
    typer.echo(
        f"\nSend {card_file} to the coordinator, and read out the fingerprint over the telephone:\n"
        f"    {card.fingerprint}\n"
        f"Then say what your data are in {folder / 'hospital.toml'}, and wait for the roster.\n"
        f"{folder / 'state'} holds your private key: it never leaves this machine.\n"
        f"{folder / 'transport'} holds the SuperNode's: "
        + ("its group can read it." if group else "give supernode.key to the user it runs as.")
    )


@app.command()
def join(
    roster: Annotated[Path, typer.Argument(help="The file that the coordinator sent.")],
    folder: Folder = _HERE,
    coordinator: Annotated[
        Path | None,
        typer.Option(
            help="How to reach the coordinator, from the same sender.",
            show_default="coordinator.json beside the roster, if there",
        ),
    ] = None,
    yes: Annotated[
        str | None,
        typer.Option(metavar="FINGERPRINT", help="Don't ask: pin the roster if this is its own."),
    ] = None,
) -> None:
    """Show who is in a study, ask, and pin its roster: from then on nobody else is answered."""
    from client_app.agent.permissions import guard_state
    from client_app.enrol import enrolment

    from .configuration import Configuration
    from .hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    with _told():
        # What another user pins here, the agent could not read.
        for finding in guard_state(place.state):
            if finding.verdict == "wrong":
                fail(2, f"{finding.text}: {finding.remedy}")
        settings = Configuration.read(place.configuration).hospital
        own, pinned = place.identity().public, place.roster()
        offered, data = enrolment.read_roster(roster)
        _show(offered, own)
        enrolment.check_roster(offered, settings, own, pinned)
        beside = roster.parent / "coordinator.json"
        way = coordinator or (beside if beside.exists() else None)
        connection = enrolment.read_connection(way, offered) if way else None
    if pinned is not None and pinned.digest == offered.digest:
        typer.echo("This roster is already pinned.")
        _keep(place, connection)
        return
    if yes is None:
        typer.confirm("Did every hospital read out this fingerprint? Pin the roster?", abort=True)
    elif yes.replace(" ", "").upper() != offered.fingerprint.replace(" ", ""):
        fail(1, f"--yes {yes}: the roster's fingerprint is {offered.fingerprint}; nothing pinned")
    with _told():
        place.pin(data)
    typer.echo(f"Pinned in {place.roster_file}. A running agent takes it up when restarted.")
    _keep(place, connection)


@app.command("renew-transport-key")
def renew_transport_key(folder: Folder = _HERE) -> None:
    """Make a new key for the SuperNode, and a card to send: when the old one was lost or seen."""
    from client_app.enrol import enrolment

    from .configuration import Configuration
    from .hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    with _told():
        settings = Configuration.read(place.configuration)
        name, group = settings.hospital.name, settings.agent.group
        card, card_file = enrolment.renew_transport_key(place, name, group)
    typer.echo(
        f"Send {card_file} to the coordinator; the fingerprint is as before:\n"
        f"    {card.fingerprint}\n"
        "Until it is enrolled, `feddc hospital connect` is turned away."
    )


@app.command()
def check(folder: Folder = _HERE) -> None:
    """Say whether this hospital would be ready, and what to do if not."""
    from client_app.check.checks import examine

    from .hospital_folder import HospitalFolder

    ready = True
    with _told():
        for finding in examine(HospitalFolder(folder)):
            ready = ready and finding.verdict != "wrong"
            typer.echo(f"{_SIGNS[finding.verdict]} {finding.subject}: {finding.text}")
            if finding.remedy:
                typer.echo(f"    → {finding.remedy}")
    raise typer.Exit(0 if ready else 1)


@app.command()
def serve(folder: Folder = _HERE) -> None:
    """Run the agent: train, seal and answer on the socket, until told to stop."""
    from client_app.agent.process import serve as run
    from client_app.check.checks import essentials

    from .configuration import Configuration
    from .hospital_folder import HospitalFolder

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    place = HospitalFolder(folder)
    with _told():
        configuration = Configuration.read(place.configuration)
        wrong = False
        for finding in essentials(place, configuration):
            if finding.verdict != "fine":
                typer.echo(f"{finding.subject}: {finding.text} → {finding.remedy}", err=True)
            wrong = wrong or finding.verdict == "wrong"
        if wrong:
            fail(2, "the agent does not start like this; see `feddc hospital check`")
        roster = place.roster()
        assert roster is not None  # noqa: S101 (one of the essentials)
        run(place, configuration, roster)


@app.command()
def connect(
    folder: Folder = _HERE,
    coordinator: Annotated[
        Path | None,
        typer.Option(help="The file that says how to reach it.", show_default="what `join` took"),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(help="The agent's socket.", show_default="hospital.toml's"),
    ] = None,
    through: Annotated[
        Path | None,
        typer.Option(
            metavar="SOCKET",
            help="Where there is no network: the socket of a forwarder that leads out.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="File of JSON lines.", show_default="transport/connect.jsonl"),
    ] = None,
) -> None:
    """Connect the agent with the coordinator: run Flower's SuperNode until told to stop."""
    # Not `_told`: the SuperNode's machine need have neither torch nor the data's libraries.
    from client_app.connect.supernode import ConnectError, keep_connected

    from .hospital_folder import FolderError, HospitalFolder

    try:
        number = keep_connected(HospitalFolder(folder), coordinator, socket, through, log)
    except (ConnectError, FolderError) as error:
        fail(2, str(error))
    except OSError as error:
        fail(2, f"{error.filename}: {error.strerror}; run this as the courier's user")
    raise typer.Exit(0 if number else 1)


@app.command()
def audit(
    folder: Folder = _HERE,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the lines as they are stored.")
    ] = False,
) -> None:
    """Show and verify the log of everything that came in and went out."""
    from client_app.state.audit_report import audit_table, models_sent, read_audit

    from .hospital_folder import HospitalFolder

    with _told():
        lines, verdict = read_audit(HospitalFolder(folder))
    if json_output:
        for line in lines:
            typer.echo(line)
    else:
        console().print(audit_table(lines))
        for recipient, count in models_sent(lines).items():
            typer.echo(f"models sent to {recipient}: {count}")
    if verdict.broken is not None:
        fail(1, f"the log is broken: line {verdict.broken} {verdict.reason}")
    typer.echo(f"{verdict.entries} lines, all of them whole and in order.", err=json_output)


@app.command()
def forget(
    folder: Folder = _HERE,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Destroy the keys and memory of all experiments, so that a stopped agent can serve again."""
    from client_app.state.reset import forget_experiments
    from client_app.state.sqlite_store import SqliteStore

    from .hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    if not yes:
        typer.confirm(
            "Running experiments go on without this hospital. Forget all of them?", abort=True
        )
    with _told():
        identity = place.identity()
        store = SqliteStore(place.store_file)
        try:
            forget_experiments(store, identity)
        finally:
            store.close()
    typer.echo("All experiments are forgotten; identity, roster and audit log are as they were.")


def _keep(place: "HospitalFolder", connection: "Connection | None") -> None:
    if connection is None:
        return
    with _told():
        place.keep_connection(connection)
    typer.echo(f"The coordinator is at {connection.address}: `feddc hospital connect`.")


def _show(roster: "Roster", own: bytes) -> None:
    from protocol.study.roster import fingerprint

    table = Table("member", "fingerprint", "", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for member in roster.members:
        you = "you" if member.identity == own else ""
        table.add_row(Text(member.name), member.fingerprint, you)
    typer.echo(
        f"study        {roster.study}\n"
        f"generation        {roster.generation}\n"
        f"coordinator  {fingerprint(roster.coordinator)}\n"
    )
    console().print(table)
    typer.echo(f"\nfingerprint of this roster:\n    {roster.fingerprint}\n")


@contextmanager
def _told() -> Iterator[None]:
    """Say what went wrong in one line."""
    from client_app.enrol.enrolment import EnrolmentRefused
    from client_app.state.sqlite_store import StoreError
    from learning.data import DataError
    from operation.config import SettingsError
    from operation.unix_socket import SocketTaken

    from .hospital_folder import FolderError

    try:
        yield
    except EnrolmentRefused as error:
        fail(1, str(error))
    except (DataError, FolderError, SettingsError, SocketTaken, StoreError) as error:
        fail(2, str(error))
    except OSError as error:
        fail(2, f"{error.filename}: {error.strerror}; run this as the agent's user")
