"""What the shell completes for the coordinator: experiments and members of the study."""

from contextlib import suppress
from pathlib import Path

import click

from .shared import DEFAULT_FOLDER


def _study(context: click.Context) -> Path:
    return Path(context.params.get("study") or DEFAULT_FOLDER)


def experiments(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the ids of the study's experiments, newest first."""
    with suppress(OSError):
        folders = (_study(ctx) / "experiments").iterdir()
        return sorted((folder.name for folder in folders if folder.is_dir()), reverse=True)
    return []


def settings(incomplete: str) -> list[tuple[str, str]]:
    """Complete `--set`."""
    from server_app.config.completion import settings as found  # imports pydantic

    return found(incomplete)


def members(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the names of the enrolled hospitals."""
    with suppress(Exception):  # the command itself tells what is wrong
        from server_app.study.study_folder import Study
        from server_app.study.study_members import enrolled

        return [card.name for card in enrolled(Study.open(_study(ctx)))]
    return []
