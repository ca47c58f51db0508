"""The root of the `feddc` command: it names groups and commands, and imports one when it is called.

A hospital's commands therefore load nothing of the coordinator's or the lab's code.
"""

import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated, NamedTuple

import click
import typer
from typer.core import TyperGroup

from operation.command_line.command import command_class
from operation.terminal import echo


class Entry(NamedTuple):
    """A group (a Typer app) or a command (a function) that is imported when it is called."""

    help: str
    target: str  # module:attribute
    example: str = ""  # of a command
    renamed: Mapping[str, str] = {}  # former options of a command


ENTRIES = {
    "simulate": Entry(
        "Run FedDC on simulated hospitals on this machine, with Flower's simulation engine.",
        "lab.commands.simulate_command:simulate",
        "feddc simulate --hospitals 5 --rounds 20",
        renamed={"--samples": "--examples"},
    ),
    "coordinator": Entry("Coordinate a study of hospitals.", "server_app.cli:app"),
    "hospital": Entry("Take part in a study with your own data.", "client_app.cli:app"),
    "lab": Entry("Compare methods on one machine.", "lab.cli:app"),
    "sealing": Entry(
        "Seal the hand-overs of your own Flower app.", "client_app.cli.sealing_commands:app"
    ),
    "docs": Entry(
        "Show the documentation of this version; nothing is downloaded.",
        "operation.command_line.docs_command:docs",
        "feddc docs hospital",
    ),
}


def main() -> None:
    """Run the command and exit; report wrong arguments in one line."""
    try:
        code = app(prog_name="feddc", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        echo(f"feddc: {' '.join(error.format_message().split())}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except Exception:
        echo(traceback.format_exc(), err=True)  # its message may quote a file from outside
        sys.exit(1)
    sys.exit(code)


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are called, but not to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load(cmd_name) if cmd_name in ENTRIES else None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        index = TyperGroup(
            name=self.name,
            help=self.help,
            params=self.params,
            commands={
                name: click.Command(name, help=entry.help) for name, entry in ENTRIES.items()
            },
        )
        index.format_help(ctx, formatter)


def _load(name: str) -> click.Command:
    module, _, attribute = ENTRIES[name].target.partition(":")
    target = getattr(import_module(module), attribute)
    if isinstance(target, typer.Typer):
        command: click.Command = typer.main.get_group(target)
    else:
        single = typer.Typer(add_completion=False)
        entry = ENTRIES[name]
        single.command(name, cls=command_class(entry.example, renamed=entry.renamed))(target)
        command = typer.main.get_command(single)
    command.name = name
    return command


app = typer.Typer(
    name="feddc",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        echo(f"feddc {_version()}")
        raise typer.Exit


def _version() -> str:
    try:
        return installed_version("feddc")
    except PackageNotFoundError:
        return "(not installed)"


@app.callback()
def feddc(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Federated daisy-chaining: better models from small, private data sets."""


if __name__ == "__main__":
    main()
