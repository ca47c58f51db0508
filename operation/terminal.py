"""Output that all commands share: lines, errors in one line, tables, sizes, fractions.

Commands print through `echo`, `fail` and `console` only, which make text from outside harmless.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from operation.disk_space import DiskFull
from operation.disk_space import byte_size as byte_size
from operation.foreign_text import printable

_WIDTH_OF_A_FILE = 160


@contextmanager
def exit_on_error(
    *errors: type[Exception], refusals: tuple[type[Exception], ...] = (), user: str
) -> Iterator[None]:
    """Print an expected error as one line and exit, instead of showing a traceback.

    `refusals` exit with code 1, `errors` and any OSError with code 2. The message of an OSError
    adds which `user` should run the command, or that the disk is full.
    """
    try:
        yield
    except refusals as error:
        fail(1, str(error))
    except errors as error:
        fail(2, str(error))
    except DiskFull as error:
        fail(2, f"{error}; free some space there")
    except OSError as error:
        fail(2, f"{error.filename}: {error.strerror}; run this command as {user}")


def fail(code: int, message: str) -> NoReturn:
    """Print an error as one line and exit with `code`."""
    echo(f"feddc: {printable(message)}", err=True)
    raise typer.Exit(code)


def echo(text: str, *, err: bool = False) -> None:
    """Print text, of one or more lines, with everything unprintable spelled out."""
    typer.echo(printable(text, lines=True, limit=None), err=err)


def console() -> Console:
    """Return the console that tables are printed on."""
    shown = _PlainConsole(highlight=False)
    # A file has no width, and a fingerprint must not be cut off.
    return shown if shown.is_terminal else _PlainConsole(highlight=False, width=_WIDTH_OF_A_FILE)


def error_console() -> Console:
    """Return the console for progress, on stderr."""
    return _PlainConsole(stderr=True, soft_wrap=True, highlight=False)


@contextmanager
def activity(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show what is under way, and for how long, on stderr; yield a function that changes the text.

    Nothing is shown with `quiet`, which commands set for `--json`, or where stderr is no terminal.
    Print the command's output before or afterwards, not meanwhile.
    """
    shown = error_console()
    if quiet or not shown.is_terminal:
        yield lambda text: None
        return
    # Only now: most commands are over at once.
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=shown, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task(text, total=None)
        yield lambda text: progress.update(task, description=text, refresh=True)


class _PlainConsole(Console):
    """A console whose only control sequences are rich's own; those in texts are spelled out."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            shown = text if control else printable(text, lines=True, limit=None)
            yield Segment(shown, style, control)


def percent(fraction: float | None, *, digits: int = 1, unknown: str = "–") -> str:
    """Format a fraction for terminals and pages, e.g. `72.9 %`; `unknown` stands for None."""
    return unknown if fraction is None else f"{100 * fraction:.{digits}f} %"


def counted(count: int, noun: str) -> str:
    """Format a number of things, e.g. `1 leg`, `7 legs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
