"""What the coordinator's commands share: the study's folder, and errors in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operation.terminal import fail

if TYPE_CHECKING:
    from .study import Study

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
    from learning.settings import SettingsError

    from .certificates import CertificateError
    from .members import EnrolmentError
    from .proxy import ProxyError
    from .service_lock import AlreadyUp
    from .serving import ServiceError
    from .study import StudyError

    try:
        yield
    except (EnrolmentError, ServiceError, ProxyError, CertificateError, AlreadyUp) as error:
        fail(1, str(error))
    except (StudyError, SettingsError) as error:
        fail(2, str(error))
    except OSError as error:
        fail(2, f"{error.filename}: {error.strerror}; run this as the owner of the study's folder")


def open_study(folder: Path) -> "Study":
    from .study import Study

    return Study.open(folder)
