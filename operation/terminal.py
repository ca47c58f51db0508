"""Output that all commands share: errors in one line, tables, sizes."""

from typing import NoReturn

import typer
from rich.console import Console

_WIDTH_OF_A_FILE = 160


def fail(code: int, message: str) -> NoReturn:
    """End the command with an error message of one line."""
    typer.echo(f"feddc: {message}", err=True)
    raise typer.Exit(code)


def console() -> Console:
    """Return the console that tables are printed on."""
    shown = Console(highlight=False)
    # A file has no width, and a fingerprint must not be cut off.
    return shown if shown.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_FILE)


def byte_size(count: float) -> str:
    """Format a number of bytes, e.g. `4.2 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
