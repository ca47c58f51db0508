"""The folder of a comparison: the request, one file per finished trial, and the results."""

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.experiments import ExperimentError
from lab.sweep.differences import differences
from lab.sweep.plan import Request
from lab.sweep.record import Record
from operation import files
from operation.locks import LockHeld, ProcessLock

RESULTS = "results.json"
_FIELDS = {
    *("experiment", "title", "claim", "note", "format", "preset", "judged"),
    *("settings", "seeds", "hardware", "rows", "gains"),
}
_REQUEST, _CLOCK, _LOCK = "sweep.json", "clock.json", ".lock"


class RunFolder:
    """All files of one comparison."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began, self._before = time.monotonic(), 0.0

    @staticmethod
    def for_request(request: Request, path: Path | None = None) -> "RunFolder":
        """Return the folder at `path`, else an unfinished one of the same request, else a new one.

        A comparison in an explicitly named folder can be extended: finished trials are not trained
        again.
        """
        if path is None:
            folder = _unfinished(request) or RunFolder(_new(request.experiment.name))
        else:
            folder = RunFolder(path)
            folder._check(request)
        if not (folder.path / _REQUEST).exists():
            folder.write(_REQUEST, request.to_json())
        return folder

    @staticmethod
    def open(path: Path) -> "RunFolder":
        """Return the folder of an earlier comparison."""
        folder = RunFolder(path)
        if not (path / _REQUEST).is_file():
            raise ExperimentError(f"{path} is not a run folder of `feddc lab run`: no {_REQUEST}")
        return folder

    @contextmanager
    def used_for(self, request: Request) -> Iterator[None]:
        """Lock the folder, save the current request, and measure the time."""
        with self._lock():
            self.write(_REQUEST, request.to_json())
            self._began, self._before = time.monotonic(), self._noted_seconds()
            try:
                yield
            finally:
                self.note_time()

    def _check(self, request: Request) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ExperimentError(f"run-dir {self.path} is a file: choose another")
        if not self.path.is_dir() or not any(self.path.iterdir()):
            return
        if not (self.path / _REQUEST).is_file():
            raise ExperimentError(
                f"run-dir {self.path} is not empty and not a run folder: choose another"
            )
        if found := differences(self.request(), request):
            raise ExperimentError(
                f"run-dir {self.path} holds another comparison ({'; '.join(found)}): "
                "choose another --run-dir"
            )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the folder as long as this process lives, however it ends."""
        path = self.path / _LOCK
        lock = ProcessLock(path, mode=0o644)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(str(os.getpid()))
        except OSError as error:
            raise ExperimentError(f"{path} can't be written: {error.strerror}") from error
        except LockHeld as error:
            raise ExperimentError(
                f"{self.path} is in use by process {error.holder or 'unknown'}: wait until it "
                "ends, or choose another --run-dir"
            ) from error
        try:
            yield
        finally:
            lock.release()

    @property
    def seconds(self) -> float:
        """The time the comparison has taken so far, over all commands that continued it."""
        return self._before + time.monotonic() - self._began

    def note_time(self) -> None:
        """Save the time taken so far, so that a killed command loses little of it."""
        self.write(_CLOCK, {"seconds": round(self.seconds, 1)})

    def _noted_seconds(self) -> float:
        for name in (_CLOCK, RESULTS):  # the latter of a run that had no clock yet
            if (self.path / name).is_file():
                return float(self.read(name).get("seconds", 0.0))
        return 0.0

    def request(self) -> Request:
        return Request.from_json(self.read(_REQUEST))

    @property
    def results_path(self) -> Path:
        return self.path / RESULTS

    def results(self) -> dict[str, Any]:
        """Read the results of a finished comparison."""
        if not self.results_path.is_file():
            raise ExperimentError(f"{self.path} is not finished: it has no {RESULTS}")
        results = self.read(RESULTS)
        if lacking := _FIELDS - results.keys():
            names = ", ".join(sorted(lacking))
            raise ExperimentError(f"{self.results_path} is damaged: no {names}")
        return results

    def records(self) -> dict[str, Record]:
        """Return the finished trials by their keys."""
        found = {}
        for file in sorted((self.path / "trials").glob("*.json")):
            values = self.read(f"trials/{file.name}")
            try:
                found[file.stem] = Record.from_json(values)
            except (KeyError, TypeError) as error:
                raise ExperimentError(
                    f"{file} is damaged, or of another version: choose another --run-dir"
                ) from error
        return found

    def keep(self, key: str, record: Record) -> None:
        """Save a finished trial and remove its checkpoint."""
        self.write(f"trials/{key}.json", record.to_json())
        checkpoint = self.checkpoint(key)
        checkpoint.unlink(missing_ok=True)
        checkpoint.with_suffix(".time.json").unlink(missing_ok=True)

    def checkpoint(self, key: str) -> Path:
        return self.path / "checkpoints" / f"{key}.safetensors"

    def clear_checkpoints(self) -> None:
        """Remove the checkpoints, which only an unfinished comparison needs."""
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def read(self, name: str) -> dict[str, Any]:
        """Read one of its JSON files."""
        path = self.path / name
        try:
            values = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ExperimentError(f"{path} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise ExperimentError(f"{path} is damaged: {error}") from error
        if not isinstance(values, dict):
            raise ExperimentError(f"{path} is damaged: not a JSON object")
        return values

    def write(self, name: str, values: dict[str, Any]) -> Path:
        """Write a JSON file, whole or not at all."""
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(values, ensure_ascii=False, indent=1) + "\n"
            files.replace(path, text.encode())
        except OSError as error:
            raise ExperimentError(f"{path} can't be written: {error.strerror}") from error
        return path


def _new(name: str) -> Path:
    return Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}-{secrets.token_hex(3)}"


def _unfinished(request: Request) -> RunFolder | None:
    wanted = request.to_json()
    for folder in reversed(list(_folders(Path("runs")))):
        with suppress(ExperimentError):  # a damaged folder can't be continued
            if not folder.results_path.exists() and folder.read(_REQUEST) == wanted:
                return folder
    return None


def _folders(place: Path) -> Iterator[RunFolder]:
    for path in sorted(place.glob(f"*/{_REQUEST}")):
        yield RunFolder(path.parent)
