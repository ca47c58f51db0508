"""Refuse commands and options under a former name, and name the new one."""

from collections.abc import Mapping

import click
from typer.core import TyperCommand, TyperGroup


def renamed_commands(names: Mapping[str, str]) -> type[TyperGroup]:
    """Return a group for `typer.Typer(cls=…)` that refuses these commands: former → new name."""

    class Group(TyperGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name in names:
                raise click.UsageError(f"{cmd_name} was renamed: use {names[cmd_name]}")
            return super().get_command(ctx, cmd_name)

    return Group


def renamed_options(names: Mapping[str, str]) -> type[TyperCommand]:
    """Return a class for `app.command(cls=…)` that refuses these options: former → new name."""

    class Command(TyperCommand):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            for argument in args:
                former = argument.partition("=")[0]
                if former in names:
                    raise click.UsageError(f"{former} was renamed: use {names[former]}")
            return super().parse_args(ctx, args)

    return Command
