"""The Flower runs of an experiment: the first, and one for each time it was resumed."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from operation import files
from operation.runs.event_file import FILE_NAME

_FILE = "flower_runs.json"


@dataclass(frozen=True)
class FlowerRun:
    """A run's id, and the length of metrics.jsonl when it started."""

    run_id: int
    position: int


def flower_runs(folder: Path) -> list[FlowerRun]:
    """Return the Flower runs of the experiment in a folder, oldest first."""
    try:
        return [FlowerRun(**entry) for entry in json.loads((folder / _FILE).read_text())]
    except FileNotFoundError:
        return []


def latest_run(folder: Path) -> FlowerRun | None:
    """Return the last Flower run of the experiment in a folder, if it was ever started."""
    return next(reversed(flower_runs(folder)), None)


def add_flower_run(folder: Path, run: FlowerRun) -> None:
    entries = [asdict(entry) for entry in (*flower_runs(folder), run)]
    files.replace(folder / _FILE, (json.dumps(entries, indent=2) + "\n").encode())


def metrics_length(folder: Path) -> int:
    """Return the present length of the experiment's metrics.jsonl."""
    try:
        return (folder / FILE_NAME).stat().st_size
    except FileNotFoundError:
        return 0
