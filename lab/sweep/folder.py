"""A comparison's folder: the request, one file for each trial that is done, and the results."""

import json
import secrets
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.experiments import ExperimentError
from lab.sweep.plan import Request
from lab.sweep.record import Record

_REQUEST, _RESULTS = "sweep.json", "results.json"


class RunFolder:
    """Where everything of one comparison is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def for_request(request: Request, path: Path | None = None) -> "RunFolder":
        """Return the folder asked for, else an unfinished one of the same request, else a new one.

        In a folder that is asked for by name a comparison may grow: what is done is not done again.
        """
        if path is not None:
            folder = RunFolder(path)
            folder._check(request)
        else:
            folder = _unfinished(request) or RunFolder(_new(request.experiment.name))
        folder.write(_REQUEST, request.to_json())
        return folder

    @staticmethod
    def open(path: Path) -> "RunFolder":
        """Return the folder of an earlier comparison."""
        folder = RunFolder(path)
        if not (path / _REQUEST).is_file():
            raise ExperimentError(f"{path} is no comparison's folder: it has no {_REQUEST}")
        return folder

    def _check(self, request: Request) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ExperimentError(f"run-dir {self.path} is a file: choose another")
        if self.path.is_dir() and any(self.path.iterdir()):
            here = RunFolder.open(self.path).request().experiment.name
            if here != request.experiment.name:
                raise ExperimentError(f"run-dir {self.path} holds {here}: choose another")

    def request(self) -> Request:
        return Request.from_json(self.read(_REQUEST))

    @property
    def results_path(self) -> Path:
        return self.path / _RESULTS

    def records(self) -> dict[str, Record]:
        """Return what is done, by the trials' keys."""
        return {
            file.stem: Record.from_json(json.loads(file.read_text("utf-8")))
            for file in sorted((self.path / "trials").glob("*.json"))
        }

    def keep(self, key: str, record: Record) -> None:
        """Write down a trial that is done; its checkpoint is of no more use."""
        self.write(f"trials/{key}.json", record.to_json())
        self.checkpoint(key).unlink(missing_ok=True)

    def checkpoint(self, key: str) -> Path:
        return self.path / "checkpoints" / f"{key}.safetensors"

    def clear_checkpoints(self) -> None:
        """Remove what only an unfinished comparison needs."""
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def read(self, name: str) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((self.path / name).read_text("utf-8"))
        return values

    def write(self, name: str, values: dict[str, Any]) -> Path:
        """Write a JSON file, whole or not at all."""
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.tmp")
            draft.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", "utf-8")
            draft.replace(path)
        except OSError as error:
            raise ExperimentError(f"{path} can't be written: {error.strerror}") from error
        return path


def _new(name: str) -> Path:
    return Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}-{secrets.token_hex(3)}"


def _unfinished(request: Request) -> RunFolder | None:
    wanted = request.to_json()
    for folder in reversed(list(_folders(Path("runs")))):
        if not folder.results_path.exists() and folder.read(_REQUEST) == wanted:
            return folder
    return None


def _folders(place: Path) -> Iterator[RunFolder]:
    for path in sorted(place.glob(f"*/{_REQUEST}")):
        yield RunFolder(path.parent)
