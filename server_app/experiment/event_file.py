"""Incremental reading of metrics.jsonl, which the ServerApp writes while it runs."""

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class EventFile:
    """Reads each line of a growing file once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.position = 0  # end of the last complete line that was read

    def new_events(self, *, until: int | None = None) -> list[Event]:
        """Return the events since the last call, or up to a position; none without a file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.position)
                written = file.read() if until is None else file.read(until - self.position)
        except FileNotFoundError:
            return []
        complete = written[: written.rfind(b"\n") + 1]  # the last line may be incomplete
        self.position += len(complete)
        return [event for line in complete.splitlines() if (event := _read(line)) is not None]


def _read(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:  # incomplete: its ServerApp was killed
        return None
    return event if isinstance(event, dict) else None
