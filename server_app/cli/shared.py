"""What the coordinator's commands share: the study's folder, and errors in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operation.terminal import fail

if TYPE_CHECKING:
    from server_app.study.study_folder import Study

Folder = Annotated[
    Path,
    typer.Option(
        "--study", envvar="FEDDC_STUDY", help="The study's folder.", show_default="./study"
    ),
]
HERE = Path("study")


@contextmanager
def told() -> Iterator[None]:
    """Say what went wrong in one line."""
    from operation.config import SettingsError
    from server_app.services.nginx import ProxyError
    from server_app.services.service_lock import AlreadyUp
    from server_app.services.supervisor import ServiceError
    from server_app.study.certificates import CertificateError
    from server_app.study.study_folder import StudyError
    from server_app.study.study_members import EnrolmentError

    try:
        yield
    except (EnrolmentError, ServiceError, ProxyError, CertificateError, AlreadyUp) as error:
        fail(1, str(error))
    except (StudyError, SettingsError) as error:
        fail(2, str(error))
    except OSError as error:
        fail(2, f"{error.filename}: {error.strerror}; run this as the owner of the study's folder")


def open_study(folder: Path) -> "Study":
    from server_app.study.study_folder import Study

    return Study.open(folder)
