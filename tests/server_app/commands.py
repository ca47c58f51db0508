"""The coordinator's commands, called in this process."""

from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from operation.cli import app
from server_app.study.study_folder import Study


def feddc(*arguments: object, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["coordinator", *map(str, arguments)], input=answer)


def initialised(folder: Path) -> Study:
    """Create a study without members."""
    done = feddc("init", "--name", "hearts", "--address", "fl.example.org:8443", "--study", folder)
    assert done.exit_code == 0, done.output
    return Study.open(folder)
