"""Commands to enrol in a study: `init`, `join`, `card`, `renew-transport-key`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from operation.terminal import console, echo, fail

from .shared import DEFAULT_FOLDER, Folder, exit_on_error, require_agents_user

if TYPE_CHECKING:
    from client_app.hospital_folder import HospitalFolder
    from protocol.codebook import Codebook
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
    codebook: Annotated[
        Path | None,
        typer.Option(
            help="Codebook from the coordinator.",
            show_default="the file codebook beside the roster, if it exists",
        ),
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(help="Pin without asking if the roster has this fingerprint."),
    ] = None,
    codebook_fingerprint: Annotated[
        str | None,
        typer.Option(help="Pin without asking if the codebook has this fingerprint."),
    ] = None,
) -> None:
    """Review and pin a roster and the study's codebook; nothing else is served afterwards."""
    from client_app.check.disclosure import check_announced, check_disclosure
    from client_app.configuration import Configuration
    from client_app.enrol import enrolment
    from client_app.hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    with exit_on_error():
        require_agents_user(place.state)
        configuration = Configuration.read(place.configuration)
        settings = configuration.hospital
        own, pinned = place.identity().public, place.roster()
        offered, data = enrolment.read_roster(roster)
        _show(offered, own)
        for finding in check_disclosure(configuration.policy):
            echo(f"Your policy: {finding.text}.")
        for finding in check_announced(place, configuration):
            echo(f"Your policy: {finding.text}: {finding.remedy}.")
        enrolment.check_roster(offered, settings, own, pinned)
        default = roster.parent / "coordinator.json"
        file = coordinator or (default if default.exists() else None)
        connection = enrolment.read_connection(file, offered) if file else None
        default = roster.parent / "codebook"
        file = codebook or (default if default.exists() else None)
        book = enrolment.read_codebook(file, offered) if file else None
        known = place.codebook_file.read_bytes() if place.codebook_file.exists() else None
    if book is not None and book[1] == known:
        book = None
    if pinned is not None and pinned.digest == offered.digest:
        echo("This roster is already pinned.")
    else:
        _confirm("roster", "--fingerprint", fingerprint, offered.fingerprint)
        with exit_on_error():
            place.pin(data)
        echo(f"Pinned in {place.roster_file}. Restart the agent if it is running.")
    if book is not None:
        _pin_codebook(place, *book, codebook_fingerprint)
    _save(place, connection)


def card(folder: Folder = DEFAULT_FOLDER) -> None:
    """Write your card again, to announce a policy that you have changed."""
    from client_app.configuration import Configuration
    from client_app.enrol import enrolment
    from client_app.hospital_folder import HospitalFolder
    from protocol.study.announced_policy import policy_text

    place = HospitalFolder(folder)
    with exit_on_error():
        settings = Configuration.read(place.configuration)
        made, card_file = enrolment.renew_card(place, settings)
    if made.policy is not None:
        echo(f"Announced since {made.policy.since}: {policy_text(made.policy)}.")
    echo(
        f"Send {card_file} to the coordinator. It shows what `feddc coordinator run --dry-run` "
        "compares with; your agent enforces hospital.toml, whatever was announced."
    )


def renew_transport_key(folder: Folder = DEFAULT_FOLDER) -> None:
    """Replace a lost or exposed transport key, and create a new card to send."""
    from client_app.configuration import Configuration
    from client_app.enrol import enrolment
    from client_app.hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    with exit_on_error():
        settings = Configuration.read(place.configuration)
        card, card_file = enrolment.renew_transport_key(place, settings)
    echo(
        f"Send {card_file} to the coordinator; the fingerprint has not changed:\n"
        f"    {card.fingerprint}\n"
        "The coordinator rejects `feddc hospital connect` until it has enrolled the new key."
    )


def _confirm(what: str, option: str, given: str | None, actual: str) -> None:
    if given is None:
        typer.confirm(f"Did every hospital read out this fingerprint? Pin the {what}?", abort=True)
    elif given.replace(" ", "").upper() != actual.replace(" ", ""):
        fail(1, f"{option} {given}: the {what}'s fingerprint is {actual}; nothing was pinned")


def _pin_codebook(
    folder: "HospitalFolder", codebook: "Codebook", signed: bytes, fingerprint: str | None
) -> None:
    from protocol.codebook import codebook_text

    echo(f"\n{codebook_text(codebook)}\n")
    if folder.codebook_file.exists():
        echo("Another codebook is pinned: experiments under it end here when this one replaces it.")
    _confirm("codebook", "--codebook-fingerprint", fingerprint, codebook.fingerprint)
    with exit_on_error():
        folder.pin_codebook(signed)
    echo(
        f"Pinned in {folder.codebook_file}. Compare your data with it: `feddc hospital check`. "
        "Restart the agent if it is running."
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
