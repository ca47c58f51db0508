"""What the hospital's commands share: the folder option, and errors printed as one line."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from operation import terminal

Folder = Annotated[
    Path, typer.Option("--folder", help="Folder of this hospital.", show_default="./hospital")
]
DEFAULT_FOLDER = Path("hospital")


def exit_on_error() -> AbstractContextManager[None]:
    """Print an expected error of a hospital's command as one line and exit."""
    from client_app.enrol.enrolment import EnrolmentRefused
    from client_app.hospital_folder import FolderError
    from client_app.state.decisions import DecisionsError
    from client_app.state.held_out_file import HeldOutError
    from client_app.state.store_file import StoreError
    from learning.data import DataError
    from operation.config import SettingsError
    from operation.unix_socket import SocketTaken

    return terminal.exit_on_error(
        DataError,
        DecisionsError,
        FolderError,
        HeldOutError,
        SettingsError,
        SocketTaken,
        StoreError,
        refusals=(EnrolmentRefused,),
        user="the agent's user",
    )
