"""Running `feddc hospital` in this process."""

from click.testing import Result
from typer.testing import CliRunner

from operation.cli import app


def feddc(*arguments: object, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["hospital", *map(str, arguments)], input=answer)
