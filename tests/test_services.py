"""The systemd units of docs/services: systemd accepts them, and their commands exist."""

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.commands.walk import COMMANDS

UNITS = sorted((Path(__file__).parents[1] / "docs" / "services").glob("*.service"))
PROGRAM = "/opt/feddc/bin/feddc"
VERIFY = shutil.which("systemd-analyze")


def service(unit: Path) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser["Service"]


def test_there_are_units_for_hospital_and_coordinator() -> None:
    assert [unit.stem for unit in UNITS] == [
        "feddc-coordinator",
        "feddc-hospital-agent",
        "feddc-hospital-connect",
    ]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_and_its_folder_are_ours(unit: Path) -> None:
    program, group, name, *options = shlex.split(service(unit)["ExecStart"])
    assert program == PROGRAM
    command = COMMANDS[f"{group} {name}"]
    context = click.Context(command)
    command.parse_args(context, list(options))  # refuses unknown options
    variables = {parameter.envvar for parameter in command.params if parameter.envvar}
    given = dict(entry.split("=", 1) for entry in service(unit)["Environment"].split())
    (variable,) = variables & given.keys()
    assert given[variable] == service(unit)["ReadWritePaths"]


def test_the_agent_has_no_network_and_another_user_than_the_connection() -> None:
    agent, connect = (service(unit) for unit in UNITS if "hospital" in unit.stem)
    assert agent["PrivateNetwork"] == "yes"
    assert agent["User"] != connect["User"]


@pytest.mark.skipif(VERIFY is None, reason="there is no systemd-analyze on this machine")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        # It looks for the program, which is elsewhere on this machine.
        text = unit.read_text().replace(PROGRAM, sys.executable)
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        [str(VERIFY), "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    # Of other units on this machine it may complain as well.
    ours = [line for line in done.stderr.splitlines() if "feddc" in line or str(tmp_path) in line]
    assert ours == []
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(VERIFY is None, reason="there is no systemd-analyze on this machine")
def test_systemd_would_refuse_a_misspelt_line(tmp_path: Path) -> None:
    """The test above is worth something only if this one holds."""
    unit = tmp_path / "feddc-wrong.service"
    unit.write_text(f"[Service]\nExecStart={sys.executable}\nPrivateNetwrok=yes\nRestart=often\n")
    done = subprocess.run(
        [str(VERIFY), "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "PrivateNetwrok" in done.stderr
