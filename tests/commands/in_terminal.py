"""Running commands as in a terminal: what they show meanwhile, and to whom."""

import subprocess
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from operation.cli import app
from tests.federation.federation import environment

TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm"}  # rich takes any output for a terminal's


def feddc(*arguments: object, terminal: bool = True) -> Result:
    """Run a command in this process."""
    env = dict(TERMINAL) if terminal else {"FORCE_COLOR": None}
    done = CliRunner().invoke(app, list(map(str, arguments)), env=env, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def assert_shown_to_people_only(text: str, *command: object) -> None:
    """Run a command in a terminal, with --json, and into a log."""
    assert text in feddc(*command).stderr
    scripted = feddc(*command, "--json")
    assert text not in scripted.stderr
    assert scripted.output  # of an empty log there is a line on stderr only
    assert text not in feddc(*command, terminal=False).output


def progress_of(command: list[str], folder: Path) -> str:
    """Run a command in a process of its own; return what it shows on stderr."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment() | TERMINAL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    return done.stderr
