"""What all commands say in the same way."""

from typing import NoReturn

import typer
from rich.console import Console

_WIDTH_OF_A_FILE = 160


def fail(code: int, message: str) -> NoReturn:
    """End the command with one line that says why."""
    typer.echo(f"feddc: {message}", err=True)
    raise typer.Exit(code)


def console() -> Console:
    """Return the terminal, for tables."""
    shown = Console(highlight=False)
    # A file has no width; cut-off fingerprints are no use.
    return shown if shown.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_FILE)
