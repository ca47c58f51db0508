"""Output that all commands share: one-line errors and tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console

_WIDTH_OF_A_FILE = 160


@contextmanager
def exit_on_error(
    *errors: type[Exception], refusals: tuple[type[Exception], ...] = (), user: str
) -> Iterator[None]:
    """Print an expected error as one line and exit, instead of showing a traceback.

    `refusals` exit with code 1, `errors` and any OSError with code 2. The message of an OSError
    adds which `user` should run the command.
    """
    try:
        yield
    except refusals as error:
        fail(1, str(error))
    except errors as error:
        fail(2, str(error))
    except OSError as error:
        fail(2, f"{error.filename}: {error.strerror}; run this command as {user}")


def fail(code: int, message: str) -> NoReturn:
    """Print an error as one line and exit with `code`."""
    typer.echo(f"feddc: {message}", err=True)
    raise typer.Exit(code)


def console() -> Console:
    """Return the terminal, for tables."""
    shown = Console(highlight=False)
    # A file has no width; cut-off fingerprints are no use.
    return shown if shown.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_FILE)
