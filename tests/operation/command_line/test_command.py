"""A former name of a command or an option is refused, and the message has the new one."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from operation.command_line.command import command_class, renamed_commands

app = typer.Typer(cls=renamed_commands({"old": "`new`"}))


@app.command(cls=command_class("new --after this", renamed={"--before": "--after"}))
def new(after: Annotated[str, typer.Option()] = "nothing") -> None:
    typer.echo(f"got {after}")


@app.command()
def other() -> None:
    typer.echo("other")


def test_new_names_work() -> None:
    assert CliRunner().invoke(app, ["new", "--after", "this"]).stdout == "got this\n"
    assert CliRunner().invoke(app, ["other"]).stdout == "other\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["old"], "old was renamed: use `new`"),
        (["old", "--after", "this"], "old was renamed: use `new`"),
        (["new", "--before", "this"], "--before was renamed: use --after"),
        (["new", "--before=this"], "--before was renamed: use --after"),
    ],
)
def test_a_former_name_is_refused_with_the_new_one(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_former_names_are_not_in_the_help() -> None:
    assert "old" not in CliRunner().invoke(app, ["--help"]).stdout
    assert "--before" not in CliRunner().invoke(app, ["new", "--help"]).stdout
