"""Every command of `feddc`, by its name with the group's in front, e.g. `hospital init`."""

import shlex
from collections.abc import Iterator

import click
import typer

from operation.cli import app
from operation.command_line.command import Command


def root() -> click.Group:
    command = typer.main.get_command(app)
    assert isinstance(command, click.Group)
    return command


def _below(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _below(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


COMMANDS = dict(_below(root(), ()))
GROUPS = sorted({name.partition(" ")[0] for name in COMMANDS if " " in name})


def example(name: str) -> str:
    """Return the example in a command's help."""
    command = COMMANDS[name]
    assert isinstance(command, Command), name
    return command.example


def words(name: str) -> list[str]:
    """Return the words of an example after `feddc`."""
    program, *rest = shlex.split(example(name))
    assert program == "feddc", name
    return rest
