"""What the shell completes for a hospital: experiments that were asked for, and final models."""

from contextlib import suppress
from pathlib import Path

import click

from .shared import DEFAULT_FOLDER


def asked(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the experiments that a coordinator has asked for, each with its state."""
    with suppress(Exception):  # the command itself tells what is wrong
        from client_app.hospital_folder import HospitalFolder
        from client_app.state.asked_experiments import asked_experiments

        found = asked_experiments(HospitalFolder(_folder(ctx)))
        return [(one.experiment, one.state) for one in reversed(found) if one.state != "closed"]
    return []


def models(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the closed experiments whose final model is here, newest first."""
    with suppress(OSError):
        from client_app.hospital_folder import HospitalFolder

        folders = HospitalFolder(_folder(ctx)).models.iterdir()
        return sorted((folder.name for folder in folders if folder.is_dir()), reverse=True)
    return []


def _folder(context: click.Context) -> Path:
    return Path(context.params.get("folder") or DEFAULT_FOLDER)
