"""The runs below a folder, read while they grow."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

from operation.runs.event_file import FILE_NAME, EventFile, NewerEvents
from operation.runs.history import RunHistory

from .run_view import RunRecord, View, coordinator_view

_MOST_RUNS = 30  # the newest ones; the others are in their folders
_DEPTH = 2  # a comparison has a folder with its runs


class WatchedRun:
    """One run: its record, kept up to date with what is written."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.record = RunRecord(name, RunHistory())
        self._file = EventFile(folder / FILE_NAME)
        self.changes = 0

    def refresh(self) -> bool:
        """Read what is new; return whether there was anything."""
        try:
            events = self._file.new_events()
        except NewerEvents as error:
            events = [{"event": "end", "status": "failed", "reason": str(error)}]
        if not events:
            return False
        for event in events:
            self.record.history.add(event)
        self.record.read_files(self.folder)
        self.changes += 1
        return True


class WatchedRuns:
    """All runs below a folder, newest first."""

    def __init__(self, folder: Path, online: Callable[[], dict[str, bool]] | None = None) -> None:
        self._folder, self._online = folder, online
        self._runs: dict[Path, WatchedRun] = {}
        self._lock = Lock()  # every open page has a thread that reads

    def refresh(self) -> list[WatchedRun]:
        """Return the runs that are there now, each read to its end."""
        with self._lock:
            return self._refresh()

    def _refresh(self) -> list[WatchedRun]:
        found = sorted(self._folders(), key=_written, reverse=True)[:_MOST_RUNS]
        self._runs = {
            folder: self._runs.get(folder)
            or WatchedRun(folder, str(folder.relative_to(self._folder)))
            for folder in found
        }
        for run in self._runs.values():
            run.refresh()
        return list(self._runs.values())

    def view(self, run: WatchedRun) -> View:
        """Return what the page shows of a run."""
        is_over = run.record.history.end is not None
        online = {} if is_over or self._online is None else self._online()
        with self._lock:
            return coordinator_view(run.record, online=online)

    def _folders(self) -> Iterator[Path]:
        for depth in range(1, _DEPTH + 1):
            for file in self._folder.glob("/".join(["*"] * depth) + f"/{FILE_NAME}"):
                yield file.parent


def _written(folder: Path) -> float:
    try:
        return (folder / FILE_NAME).stat().st_mtime
    except FileNotFoundError:  # deleted meanwhile
        return 0.0
