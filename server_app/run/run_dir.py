"""The results folder of a run, which must not hold another run's results."""

import os
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from operation.config import SettingsError
from operation.runs import event_file
from server_app.config.run_config import Settings
from server_app.pages import report

_RESULTS = (
    "settings.json",
    event_file.FILE_NAME,
    event_file.ROUTES,
    "model.safetensors",
    "accuracy.png",
    "summary.json",
    report.PUBLIC,
    report.COORDINATOR,
)


def new_run_dir(settings: Settings) -> Path:
    """Return the folder that the settings name, or a new one below runs/; do not create it."""
    if not settings.algorithm.run_dir:
        return Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{token_hex(3)}"
    folder = Path(settings.algorithm.run_dir).expanduser()
    try:
        _check(folder)
    except (OSError, ValueError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"run-dir {str(folder)!r} cannot be used: {error}") from error
    return folder


def _check(folder: Path) -> None:
    if any((folder / name).exists() for name in _RESULTS):
        raise SettingsError(f"run-dir {folder} already holds a run: choose another")
    whole = folder.resolve()
    nearest = next(place for place in (whole, *whole.parents) if place.exists())
    if not nearest.is_dir():
        raise SettingsError(f"run-dir {folder} cannot be created: {nearest} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise SettingsError(f"run-dir {folder} cannot be written: no permission for {nearest}")
