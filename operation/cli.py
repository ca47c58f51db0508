"""The `feddc` command: one group for each user, each imported only when it is used."""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated

import click
import typer
from typer.core import TyperGroup

from lab.commands.simulate_command import simulate
from operation.renamed import renamed_options

# What a group is for, and the Typer app that has its commands.
GROUPS = {
    "coordinator": ("Coordinate a study of hospitals.", "server_app.cli.study_commands:app"),
    "hospital": ("Take part in a study with your own data.", "client_app.cli:app"),
    "lab": ("Compare methods on one machine.", "lab.cli:app"),
}


def main() -> None:
    """Run the command; whatever is wrong with its arguments is said in one line."""
    try:
        code = app(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        typer.echo(f"feddc: {' '.join(error.format_message().split())}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    sys.exit(code)


app = typer.Typer(
    name="feddc",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # they may hold what a log should not
)
app.command(cls=renamed_options({"--samples": "--examples"}))(simulate)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"feddc {_version()}")
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


def _lazy(target: str) -> type[TyperGroup]:
    """Return a group that imports its commands when they are first asked for."""

    class LazyGroup(TyperGroup):
        def _load(self) -> click.Group:
            module, _, name = target.partition(":")
            group = typer.main.get_command(getattr(import_module(module), name))
            assert isinstance(group, click.Group)  # noqa: S101 (a Typer app with a callback)
            return group

        def list_commands(self, ctx: click.Context) -> list[str]:
            return self._load().list_commands(ctx)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return self._load().get_command(ctx, cmd_name)

    return LazyGroup


for _name, (_help, _target) in GROUPS.items():
    app.add_typer(typer.Typer(cls=_lazy(_target), help=_help, no_args_is_help=True), name=_name)


if __name__ == "__main__":
    main()
