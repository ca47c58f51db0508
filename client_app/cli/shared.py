"""What the hospital's commands share: the folder option, and errors without a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from operation import terminal
from operation.terminal import echo, fail

Folder = Annotated[
    Path,
    typer.Option(
        "--folder",
        envvar="FEDDC_HOSPITAL",
        help="Folder of this hospital.",
        show_default="./hospital",
    ),
]
DEFAULT_FOLDER = Path("hospital")
_MOST_PROBLEMS = 20


def require_folder(folder: Path) -> None:
    """Exit if there is no such folder: an empty answer would look like a good one."""
    if not folder.is_dir():
        fail(2, f"{folder}: no such folder; name the hospital's with --folder or FEDDC_HOSPITAL")


def require_agents_user(state: Path) -> None:
    """Exit if the agent could not read what this user writes into its state folder."""
    from client_app.check.permissions import check_state_folder

    for finding in check_state_folder(state):
        if finding.verdict == "wrong":
            fail(2, f"{finding.text}: {finding.remedy}")


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print an expected error of a hospital's command and exit.

    An error is one line; problems of the data are one line each.
    """
    from client_app.enrol.enrolment import EnrolmentRefused
    from client_app.hospital_folder import FolderError
    from client_app.state.decisions import DecisionsError
    from client_app.state.held_out_file import HeldOutError
    from client_app.state.privacy.ledger_file import LedgerError
    from client_app.state.store_file import StoreError
    from learning.data import DataError
    from operation.config import SettingsError
    from operation.unix_socket import SocketTaken

    with terminal.exit_on_error(
        DecisionsError,
        FolderError,
        LedgerError,
        HeldOutError,
        SettingsError,
        SocketTaken,
        StoreError,
        refusals=(EnrolmentRefused,),
        user="the agent's user",
    ):
        try:
            yield
        except DataError as error:
            *texts, last = error.problems[:_MOST_PROBLEMS] or (str(error),)
            for text in texts:
                echo(f"feddc: {text}", err=True)
            more = len(error.problems) - _MOST_PROBLEMS
            fail(2, f"{last}; and {more} more" if more > 0 else last)
