"""`feddc coordinator init`, `enrol`, `remove`, `roster`: a study and its members."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from operation.terminal import console, echo, fail

from . import completion
from .shared import DEFAULT_FOLDER, Folder, exit_on_study_error, open_study, register_if_up


def init(
    name: Annotated[str, typer.Option(help="Name of the study on its roster.")],
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where hospitals will reach this machine.")
    ],
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the proxy listens, if different.",
            show_default="0.0.0.0 and the address's port",
        ),
    ] = "",
    internal_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the SuperLink, on this machine only.")
    ] = 28000,
    study: Folder = DEFAULT_FOLDER,
) -> None:
    """Create a study's folder: the coordinator's identity, certificates and settings."""
    from protocol.study.roster import fingerprint
    from server_app.study.creation import create_study

    with exit_on_study_error():
        made = create_study(
            study, name=name, address=address, listen=listen, internal_port=internal_port
        )
        public = made.identity().public
    echo(
        f"The study {name} is in {made.folder}.\n"
        f"Hospitals will connect to {made.address}; the coordinator's fingerprint is\n"
        f"    {fingerprint(public)}\n"
        f"identity.key and tls/ hold private keys: back them up, and keep them secret.\n"
        f"Next: describe the task in {made.settings_file}, and run `feddc coordinator enrol` with "
        "the file that each hospital sends."
    )


def enrol(
    hospital_file: Annotated[Path, typer.Argument(help="The .hospital.json file it sent.")],
    study: Folder = DEFAULT_FOLDER,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            metavar="FINGERPRINT",
            help="Do not ask; enrol the hospital only if this is its fingerprint.",
        ),
    ] = None,
) -> None:
    """Show the name and fingerprint in a hospital's file, ask, and make it a member."""
    from server_app.study import study_members

    with exit_on_study_error():
        place = open_study(study)
        card, present = study_members.read_card(hospital_file), study_members.enrolled(place)
        announced = study_members.announced_text(card.policy)
        echo(
            f"hospital     {card.name}\nfingerprint  {card.fingerprint}\npolicy       {announced}\n"
        )
        known = next((member for member in present if member.has_keys_of(card)), None)
        if known is not None:
            # The identity that was compared when it was enrolled has signed this card too.
            is_newer = study_members.is_newer(card, known)
            if is_newer:
                study_members.add(place, card)
            echo(f"It is a member already{'; its policy is noted' if is_newer else ''}.")
        else:
            study_members.check_new(card, present, place.identity().public)
            if fingerprint is None:
                typer.confirm("Did the hospital read out this fingerprint? Enrol it?", abort=True)
            elif fingerprint.replace(" ", "").upper() != card.fingerprint.replace(" ", ""):
                fail(
                    1,
                    f"--fingerprint {fingerprint}: the file's fingerprint is {card.fingerprint}; "
                    "not enrolled",
                )
            study_members.add(place, card)
            echo(f"{card.name} is a member.")
        register_if_up(place)
        if not study_members.is_roster_current(place):
            echo("When all are enrolled: `feddc coordinator roster`.")


def remove(
    name: Annotated[
        str,
        typer.Argument(help="Name of the member on the roster.", autocompletion=completion.members),
    ],
    study: Folder = DEFAULT_FOLDER,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove a member: it cannot connect any more, and the next roster does not list it."""
    from server_app.study import study_members

    with exit_on_study_error():
        place = open_study(study)
        if not yes:
            typer.confirm(f"Remove {name} from the study?", abort=True)
        study_members.remove(place, name)
        echo(f"{name} is no longer a member.")
        register_if_up(place)
        echo(
            "Next: run `feddc coordinator roster` and send the roster to the hospitals. Until they "
            f"have joined with it, theirs still lists {name}."
        )


def roster(
    study: Folder = DEFAULT_FOLDER,
    yes: Annotated[
        bool, typer.Option("--yes", help="Sign a roster with few members without asking.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Sign the roster of the present members; a changed roster opens a new generation."""
    from server_app.study import study_members

    with exit_on_study_error():
        place = open_study(study)
        if question := study_members.why_too_few(place):
            echo(question, err=True)
            if not yes:
                typer.confirm("Sign this roster?", abort=True)
        made, is_new = study_members.write_roster(place)
        codebook = place.sign_codebook()
        place.write_connection()
    if json_output:
        shown = {
            "study": made.study,
            "generation": made.generation,
            "fingerprint": made.fingerprint,
            "is_new": is_new,
            "members": {member.name: member.fingerprint for member in made.members},
            "codebook": None if codebook is None else codebook.fingerprint,
            "for_hospitals": str(place.for_hospitals),
        }
        echo(json.dumps(shown))
        return
    table = Table("member", "fingerprint", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for member in made.members:
        table.add_row(Text(member.name), member.fingerprint)
    echo(f"study        {made.study}\ngeneration   {made.generation}\n")
    console().print(table)
    echo(f"\nfingerprint of this roster:\n    {made.fingerprint}\n")
    if codebook is not None:
        echo(f"fingerprint of the codebook:\n    {codebook.fingerprint}\n")
    if is_new:
        echo(
            f"Send {place.for_hospitals} to every hospital (nothing in it is secret), and compare "
            "the fingerprint\nover the telephone. Each pins it with `feddc hospital join`."
        )
    else:
        echo(f"The members have not changed; the roster is in {place.for_hospitals}.")


def renew_certificate(study: Folder = DEFAULT_FOLDER) -> None:
    """Renew the server's certificate; hospitals need not do anything."""
    from server_app.study import certificates

    with exit_on_study_error():
        place = open_study(study)
        certificates.make_server_certificate(place.tls, place.address.host)
        left = certificates.days_left(place.tls)
    echo(
        f"The new certificate is valid for {left} days. It takes effect after the next `down` and "
        "`up`, best between two experiments."
    )
