"""Commands and options under their former names: refused, with the new name in the message."""

from collections.abc import Mapping

import click
from typer.core import TyperCommand, TyperGroup


def renamed_options(names: Mapping[str, str]) -> type[TyperCommand]:
    """Return a command class, for `@app.command(cls=…)`, that knows an option's former name.

    >>> @app.command(cls=renamed_options({"--samples": "--examples"}))  # doctest: +SKIP
    """

    class CommandWithRenamedOptions(TyperCommand):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            try:
                return super().parse_args(ctx, args)
            except click.NoSuchOption as error:
                if new := names.get(error.option_name):
                    raise click.UsageError(
                        f"{error.option_name} was renamed: use {new}", ctx
                    ) from error
                raise

    return CommandWithRenamedOptions


def renamed_commands(names: Mapping[str, str]) -> type[TyperGroup]:
    """Return a group class, for `typer.Typer(cls=…)`, that knows a command's former name."""

    class GroupWithRenamedCommands(TyperGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if new := names.get(cmd_name):
                raise click.UsageError(f"{cmd_name} was renamed: use {new}", ctx)
            return super().get_command(ctx, cmd_name)

    return GroupWithRenamedCommands
