"""Running `feddc hospital` in this process."""

import os

from click.testing import Result
from typer.testing import CliRunner

from operation.cli import app


def feddc(*arguments: object, answer: str = "") -> Result:
    mask = os.umask(0o022)
    try:
        return CliRunner().invoke(app, ["hospital", *map(str, arguments)], input=answer)
    finally:
        os.umask(mask)  # `serve` changes it for the whole process
