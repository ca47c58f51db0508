"""What the coordinator's commands share: the study's folder, and errors in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operation.terminal import activity, echo, exit_on_error, fail

if TYPE_CHECKING:
    from server_app.study.study_folder import Study

Folder = Annotated[
    Path,
    typer.Option(
        "--study", envvar="FEDDC_STUDY", help="Folder of the study.", show_default="./study"
    ),
]
DEFAULT_FOLDER = Path("study")


@contextmanager
def exit_on_study_error() -> Iterator[None]:
    """Print an expected error of the coordinator as one line and exit."""
    from operation.config import SettingsError
    from operation.runs.event_file import NewerEvents
    from server_app.services.nginx import ProxyError
    from server_app.services.service_lock import AlreadyUp
    from server_app.services.supervisor import ServiceError
    from server_app.study.certificates import CertificateError
    from server_app.study.study_folder import StudyError
    from server_app.study.study_members import EnrolmentError

    errors = (StudyError, SettingsError, NewerEvents)
    refusals = (EnrolmentError, ServiceError, ProxyError, CertificateError, AlreadyUp)
    with exit_on_error(*errors, refusals=refusals, user="the owner of the study's folder"):
        yield


@contextmanager
def exit_on_experiment_error() -> Iterator[None]:
    """Do the same for commands that start, stop or follow experiments."""
    with exit_on_study_error():
        try:
            yield
        except Exception as error:
            # Only now: what raises these has imported their packages already.
            from learning.data import DataError
            from learning.models import ModelError
            from server_app.experiment.experiment_control import RunError

            if isinstance(error, RunError):
                fail(1, str(error))
            if isinstance(error, DataError | ModelError):
                fail(2, str(error))
            raise


def open_study(folder: Path) -> "Study":
    from server_app.study.study_folder import Study

    return Study.open(folder)


def register_if_up(study: "Study") -> None:
    """Let the present members connect, if the SuperLink is running."""
    from server_app.services.background import answers

    with activity("registering the members at the SuperLink"):
        if not answers(study, "superlink"):
            return
        from server_app.study.registration import register_members  # imports Flower: a second

        changes = register_members(study)
    for line in changes.lines():
        echo(line)
