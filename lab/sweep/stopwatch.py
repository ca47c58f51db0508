"""The time a training has taken, over all commands that continued it."""

import json
import time
from pathlib import Path

from operation import files

_SECONDS_BETWEEN = 60.0


class Stopwatch:
    """Continues from the time saved beside the checkpoint; starts at zero without one."""

    clock = staticmethod(time.monotonic)

    def __init__(self, checkpoint: Path | None) -> None:
        self._path = checkpoint.with_suffix(".time.json") if checkpoint else None
        self._began = self._noted = self.clock()
        self._before = _read(self._path) if checkpoint and checkpoint.exists() else 0.0

    @property
    def seconds(self) -> float:
        return self._before + self.clock() - self._began

    def note(self, *, now: bool = False) -> None:
        """Save the time, at most once a minute (like checkpoints) unless `now`."""
        if self._path is None or not (now or self.clock() - self._noted > _SECONDS_BETWEEN):
            return
        self._noted = self.clock()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(self._path, durable=False) as draft:
            draft.write_text(json.dumps({"seconds": round(self.seconds, 3)}), "utf-8")


def _read(path: Path | None) -> float:
    try:
        return float(json.loads(path.read_text("utf-8"))["seconds"]) if path else 0.0
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0  # only the time is lost, not the training
