"""The root of the command line: it lists its entries without importing them."""

import subprocess
import sys

import click
import pytest
import typer

from operation.cli import ENTRIES, app


def test_the_help_lists_every_entry_and_imports_none() -> None:
    script = (
        "import sys\nfrom operation.cli import app\napp(['--help'], standalone_mode=False)\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})\n"
    )

    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    page, _, loaded = shown.partition("LOADED")
    for name, entry in ENTRIES.items():
        assert name in page
        assert entry.help.split()[0] in page
    others = {"lab", "server_app", "client_app", "strategies", "learning", "protocol"}
    assert (others | {"torch", "flwr", "ray", "pydantic"}) & set(loaded.split()) == set()


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_leads_to_a_command_of_its_name(name: str) -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)

    command = root.get_command(click.Context(root), name)

    assert command is not None
    assert command.name == name
    assert isinstance(command, click.Group) == (name not in ("simulate", "docs"))
