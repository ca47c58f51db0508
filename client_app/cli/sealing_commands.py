"""`feddc sealing`: keys for sites whose own ClientApp seals hand-overs."""

from pathlib import Path
from typing import Annotated

import typer

from operation.command_line.command import command_class
from operation.terminal import echo, exit_on_error

app = typer.Typer(no_args_is_help=True, help="Seal the hand-overs of your own Flower app.")


@app.command(cls=command_class("feddc sealing key 'St Mary'"))
def key(
    name: Annotated[str, typer.Argument(help="Name of this site on the roster.")],
    folder: Annotated[Path, typer.Option("--folder", help="Where to write the files.")] = Path(),
) -> None:
    """Make this site's private key and the card to hand to the other sites."""
    from client_app.site_keys import SiteKeyError, make_key

    with exit_on_error(SiteKeyError, user="the SuperNode's user"):
        private, card = make_key(name, folder)
    echo(f"private key  {private}  (stays here)\ncard         {card}  (for the other sites)")


@app.command(cls=command_class("feddc sealing roster 'St Mary.card.json' Charite.card.json"))
def roster(
    cards: Annotated[list[Path], typer.Argument(help="The cards of all sites.")],
    out: Annotated[Path, typer.Option("--out", help="Roster file to write.")] = Path("roster.json"),
) -> None:
    """Make the roster of all sites; hand it to each of them, and not to the coordinator."""
    from client_app.site_keys import SiteKeyError, make_roster

    with exit_on_error(SiteKeyError, user="the SuperNode's user"):
        names = make_roster(cards, out)
    echo(f"{out}: {', '.join(names)}. Secret among these sites; the coordinator needs none.")
