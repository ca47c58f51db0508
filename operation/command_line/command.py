"""The classes of all commands and groups: an example in each help, former names refused.

`app.command(cls=command_class(EXAMPLE))` shows the example at the end of the command's help. Tests
run every example, with EXAMPLE_ID replaced by an experiment of theirs.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import click
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

EXAMPLE_ID = "20260101-115900-1a2b3c"  # an experiment, in examples and in the README


class Command(TyperCommand):
    """A command with an example; texts in its help are shown as they are, not as rich's markup."""

    example: ClassVar[str] = ""
    renamed: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if self.example:
            options["epilog"] = f"Example: {self.example}"
        super().__init__(*arguments, **options)
        self.help = self.help and escape(self.help)
        self.epilog = self.epilog and escape(self.epilog)
        for parameter in self.params:
            if text := getattr(parameter, "help", None):
                parameter.help = escape(text)  # type: ignore[attr-defined]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for argument in args:
            former = argument.partition("=")[0]
            if former in self.renamed:
                raise click.UsageError(f"{former} was renamed: use {self.renamed[former]}")
        return super().parse_args(ctx, args)


def command_class(example: str, *, renamed: Mapping[str, str] | None = None) -> type[Command]:
    """Return a class for `app.command(cls=…)` with this example; `renamed`: former → new option."""
    return type("Command", (Command,), {"example": example, "renamed": renamed or {}})


def renamed_commands(names: Mapping[str, str]) -> type[TyperGroup]:
    """Return a group for `typer.Typer(cls=…)` that refuses these commands: former → new name."""

    class Group(TyperGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name in names:
                raise click.UsageError(f"{cmd_name} was renamed: use {names[cmd_name]}")
            return super().get_command(ctx, cmd_name)

    return Group
