"""Every help has an example, which names an existing way to call its command, and loses no text."""

import re

import click
import pytest
from typer.testing import CliRunner

from operation.cli import app
from tests.commands.walk import COMMANDS, GROUPS, example, root, words


def shown_help(*path: str) -> str:
    """Return a help page without its frame and line breaks."""
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return " ".join(re.sub("[│╭╰╮╯─]", " ", done.output).split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_ends_with_an_example_that_the_command_accepts(name: str) -> None:
    assert shown_help(*name.split()).endswith(f"Example: {example(name)}")
    given = words(name)
    assert given[: len(name.split())] == name.split()
    COMMANDS[name].make_context(name, given[len(name.split()) :])  # raises if it would be refused


@pytest.mark.parametrize("name", COMMANDS)
def test_a_narrow_terminal_does_not_break_an_example(name: str) -> None:
    assert len(f" Example: {example(name)}") <= 79


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_text_is_shown_to_the_letter(name: str) -> None:
    page = shown_help(*name.split())
    for parameter in COMMANDS[name].params:
        text = getattr(parameter, "help", None)
        assert text, f"{name}: {parameter.name} has no help"
        plain = re.sub(r"\\(\[)", r"\1", text)
        assert " ".join(plain.split()) in page, parameter.name


def test_square_brackets_are_no_markup() -> None:
    assert "which needs the extra [export]." in shown_help("coordinator", "export")


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_the_help_of_a_group_lists_its_commands(group: str) -> None:
    page = shown_help(*group.split())
    command = root().get_command(click.Context(root()), group) if group else root()
    assert isinstance(command, click.Group)
    for name in command.list_commands(click.Context(command)):
        assert f" {name} " in page
