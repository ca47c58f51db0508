"""Commands to enrol in a study: `init`, `join`, `renew-transport-key`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from operation.terminal import console, echo, fail

from .shared import DEFAULT_FOLDER, Folder, exit_on_error

if TYPE_CHECKING:
    from client_app.hospital_folder import HospitalFolder
    from protocol.study.connection import Connection
    from protocol.study.roster import Roster


def init(
    name: Annotated[str, typer.Option(help="Name of this hospital on the roster.")],
    study: Annotated[str, typer.Option(help="Name of the study, if it is known.")] = "",
    group: Annotated[
        str,
        typer.Option(
            envvar="FEDDC_GROUP",
            help="Group that may use the agent's socket and read the SuperNode's key. It must hold "
            "the agent's and the courier's users only.",
            show_default="the agent's own",
        ),
    ] = "",
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Create this hospital's identity and configuration, and print what to send."""
    from client_app.enrol.enrolment import initialise
    from client_app.hospital_folder import HospitalFolder

    with exit_on_error():
        card, card_file = initialise(HospitalFolder(folder), name, study, group)
    echo(
        f"Send {card_file} to the coordinator, and read out this fingerprint over the telephone:"
        f"\n    {card.fingerprint}\n"
        f"Then describe your data in {folder / 'hospital.toml'}, and wait for the roster.\n"
        f"{folder / 'state'} holds your private key: never copy it to another machine.\n"
        f"{folder / 'transport'} holds the SuperNode's key: "
        + ("the group can read it." if group else "chown supernode.key to the SuperNode's user.")
    )


def join(
    roster: Annotated[Path, typer.Argument(help="Roster file from the coordinator.")],
    folder: Folder = DEFAULT_FOLDER,
    coordinator: Annotated[
        Path | None,
        typer.Option(
            help="File with the coordinator's address and certificate.",
            show_default="coordinator.json beside the roster, if it exists",
        ),
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(help="Pin without asking if the roster has this fingerprint."),
    ] = None,
) -> None:
    """Review and pin a roster; only its coordinator is served afterwards."""
    from client_app.check.disclosure import check_disclosure
    from client_app.check.permissions import check_state_folder
    from client_app.configuration import Configuration
    from client_app.enrol import enrolment
    from client_app.hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    with exit_on_error():
        # The agent could not read a roster that another user pinned.
        for finding in check_state_folder(place.state):
            if finding.verdict == "wrong":
                fail(2, f"{finding.text}: {finding.remedy}")
        configuration = Configuration.read(place.configuration)
        settings = configuration.hospital
        own, pinned = place.identity().public, place.roster()
        offered, data = enrolment.read_roster(roster)
        _show(offered, own)
        for finding in check_disclosure(configuration.policy):
            echo(f"Your policy: {finding.text}.")
        enrolment.check_roster(offered, settings, own, pinned)
        default = roster.parent / "coordinator.json"
        file = coordinator or (default if default.exists() else None)
        connection = enrolment.read_connection(file, offered) if file else None
    if pinned is not None and pinned.digest == offered.digest:
        echo("This roster is already pinned.")
        _save(place, connection)
        return
    if fingerprint is None:
        typer.confirm("Did every hospital read out this fingerprint? Pin the roster?", abort=True)
    elif fingerprint.replace(" ", "").upper() != offered.fingerprint.replace(" ", ""):
        fail(
            1,
            f"--fingerprint {fingerprint}: the roster's fingerprint is {offered.fingerprint}; "
            "nothing was pinned",
        )
    with exit_on_error():
        place.pin(data)
    echo(f"Pinned in {place.roster_file}. Restart the agent if it is running.")
    _save(place, connection)


def renew_transport_key(folder: Folder = DEFAULT_FOLDER) -> None:
    """Replace a lost or exposed transport key, and create a new card to send."""
    from client_app.configuration import Configuration
    from client_app.enrol import enrolment
    from client_app.hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    with exit_on_error():
        settings = Configuration.read(place.configuration)
        name, group = settings.hospital.name, settings.agent.group
        card, card_file = enrolment.renew_transport_key(place, name, group)
    echo(
        f"Send {card_file} to the coordinator; the fingerprint has not changed:\n"
        f"    {card.fingerprint}\n"
        "The coordinator rejects `feddc hospital connect` until it has enrolled the new key."
    )


def _save(folder: "HospitalFolder", connection: "Connection | None") -> None:
    if connection is None:
        return
    with exit_on_error():
        folder.save_connection(connection)
    echo(f"The coordinator is at {connection.address}: run `feddc hospital connect`.")


def _show(roster: "Roster", own: bytes) -> None:
    from protocol.study.roster import fingerprint

    table = Table("member", "fingerprint", "", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for member in roster.members:
        you = "you" if member.identity == own else ""
        table.add_row(Text(member.name), member.fingerprint, you)
    echo(
        f"study        {roster.study}\n"
        f"generation   {roster.generation}\n"
        f"coordinator  {fingerprint(roster.coordinator)}\n"
    )
    console().print(table)
    echo(f"\nfingerprint of this roster:\n    {roster.fingerprint}\n")
