"""`feddc coordinator`: the commands of whoever coordinates a study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from operation.terminal import console, fail

from . import experiment_commands
from .shared import HERE, Folder, open_study, told

if TYPE_CHECKING:
    from server_app.services.supervisor import Part
    from server_app.study.study_folder import Study

app = typer.Typer(no_args_is_help=True)


@app.callback()
def coordinator() -> None:
    """Coordinate a study: enrol hospitals, run experiments, watch and resume them."""


@app.command()
def init(
    name: Annotated[str, typer.Option(help="The study, as all will call it.")],
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where hospitals will reach this machine.")
    ],
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the proxy listens, if that differs.",
            show_default="0.0.0.0 and the address's port",
        ),
    ] = "",
    internal_port: Annotated[
        int, typer.Option(min=1, max=65535, help="The SuperLink's, on this machine only.")
    ] = 28000,
    study: Folder = HERE,
) -> None:
    """Make a study's folder: the coordinator's identity, certificates, settings."""
    from protocol.study.roster import fingerprint
    from server_app.study.creation import found

    with told():
        made = found(study, name=name, address=address, listen=listen, internal_port=internal_port)
        public = made.identity().public
    typer.echo(
        f"The study {name} is in {made.folder}.\n"
        f"Hospitals will connect to {made.address}; the coordinator's fingerprint is\n"
        f"    {fingerprint(public)}\n"
        f"identity.key and tls/ hold private keys: back them up, and show them to nobody.\n"
        f"Next: say in {made.settings_file} what is learnt, and `feddc coordinator enrol` the file "
        "that each hospital sends."
    )


@app.command()
def enrol(
    hospital_file: Annotated[Path, typer.Argument(help="The .hospital.json that it sent.")],
    study: Folder = HERE,
    yes: Annotated[
        str | None,
        typer.Option(metavar="FINGERPRINT", help="Don't ask: enrol it if this is its own."),
    ] = None,
) -> None:
    """Show who a hospital's file is from, ask, and make it a member."""
    from server_app.study import study_members

    with told():
        place = open_study(study)
        card, present = study_members.read_card(hospital_file), study_members.enrolled(place)
        typer.echo(f"hospital     {card.name}\nfingerprint  {card.fingerprint}\n")
        if card in present:
            typer.echo("It is a member already.")
        else:
            study_members.check_new(card, present, place.identity().public)
            if yes is None:
                typer.confirm("Did the hospital read out this fingerprint? Enrol it?", abort=True)
            elif yes.replace(" ", "").upper() != card.fingerprint.replace(" ", ""):
                fail(1, f"--yes {yes}: the file's fingerprint is {card.fingerprint}; not enrolled")
            study_members.add(place, card)
            typer.echo(f"{card.name} is a member.")
        _register_if_up(place)
        if not study_members.is_roster_current(place):
            typer.echo("When all are enrolled: `feddc coordinator roster`.")


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="The member, as the roster calls it.")],
    study: Folder = HERE,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Remove a member: it can't connect any more, and the next roster is without it."""
    from server_app.study import study_members

    with told():
        place = open_study(study)
        if not yes:
            typer.confirm(f"Remove {name} from the study?", abort=True)
        study_members.remove(place, name)
        typer.echo(f"{name} is no member any more.")
        _register_if_up(place)
        typer.echo(
            "Next: `feddc coordinator roster`, and send it to the hospitals: until they have "
            f"joined with it, theirs still lists {name}."
        )


@app.command()
def roster(study: Folder = HERE) -> None:
    """Sign the roster of the present members; a changed one opens a new generation."""
    from server_app.study import study_members

    with told():
        place = open_study(study)
        made, is_new = study_members.write_roster(place)
        place.write_connection()
    table = Table("member", "fingerprint", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for member in made.members:
        table.add_row(Text(member.name), member.fingerprint)
    typer.echo(f"study        {made.study}\ngeneration        {made.generation}\n")
    console().print(table)
    typer.echo(f"\nfingerprint of this roster:\n    {made.fingerprint}\n")
    if is_new:
        typer.echo(
            f"Send {place.for_hospitals} to every hospital (nothing in it is secret), and compare "
            "the fingerprint\nover the telephone. Each pins it with `feddc hospital join`."
        )
    else:
        typer.echo(f"The members are those of the last roster. It is in {place.for_hospitals}.")


@app.command()
def renew(study: Folder = HERE) -> None:
    """Renew the server's certificate; hospitals notice nothing."""
    from server_app.study import certificates

    with told():
        place = open_study(study)
        certificates.make_server_certificate(place.tls, place.address.host)
        left = certificates.days_left(place.tls)
    typer.echo(
        f"The new certificate is good for {left} days. It is used after the next `down` and `up`, "
        "best between two experiments."
    )


@app.command()
def up(
    study: Folder = HERE,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and show the log: for containers.")
    ] = False,
    only: Annotated[
        Literal["superlink", "proxy"] | None,
        typer.Option(help="Only this part, where the other has a container of its own."),
    ] = None,
) -> None:
    """Start the SuperLink, and the proxy before it that hospitals connect to."""
    from server_app.services import background
    from server_app.services.supervisor import PARTS, serve

    parts: tuple[Part, ...] = PARTS if only is None else (only,)
    with told():
        place = open_study(study)
        _renew_if_needed(place)
        if foreground:
            raise typer.Exit(_exit_code(serve(place, parts, terminal=True)))
        if background.running(place):
            _wait_until_it_answers(place, parts)
            typer.echo("The coordinator is already up.")
        else:
            background.start(place, parts)
            typer.echo(f"The coordinator is up: hospitals connect to {place.address}.")
        if "superlink" in parts:
            _register_if_up(place)


@app.command()
def down(study: Folder = HERE) -> None:
    """Stop SuperLink and proxy; a running experiment can be resumed later."""
    from server_app.services import background

    with told():
        was_up = background.stop(open_study(study))
    typer.echo("The coordinator is down." if was_up else "The coordinator was not up.")


app.command()(experiment_commands.run)
app.command()(experiment_commands.follow)
app.command()(experiment_commands.status)
app.command()(experiment_commands.resume)
app.command()(experiment_commands.stop)


def _register_if_up(place: "Study") -> None:
    from server_app.services.background import answers

    if not answers(place, "superlink"):
        return
    from server_app.study.registration import register_members  # imports Flower: a second

    for line in register_members(place).told():
        typer.echo(line)


def _renew_if_needed(place: "Study") -> None:
    from server_app.study import certificates

    if reason := certificates.why_renew(place.tls, place.address.host):
        certificates.make_server_certificate(place.tls, place.address.host)
        typer.echo(f"The server's certificate was renewed: {reason}.")


def _wait_until_it_answers(place: "Study", parts: "tuple[Part, ...]") -> None:
    from server_app.services.background import wait_until_it_answers

    wait_until_it_answers(place, parts)


def _exit_code(number: int) -> int:
    return 0 if number else 1
