"""The files that a run writes: metrics.jsonl line by line, and JSON objects."""

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operation import files


class MetricsFile:
    """metrics.jsonl: one event per line, written as it happens."""

    def __init__(self, path: Path, *, append: bool) -> None:
        """Open the file; without `append` it must not exist, so no other run is overwritten."""
        is_cut_off = append and path.exists() and not path.read_bytes().endswith(b"\n")
        self._file = path.open("a" if append else "x", encoding="utf-8")
        if is_cut_off:  # the run was killed while it wrote
            self._file.write("\n")

    def write(self, event: str, **fields: object) -> None:
        line = {"event": event, "time": time.time(), **fields}
        self._file.write(json.dumps(_finite(line)) + "\n")
        self._file.flush()

    def close(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object atomically."""
    files.replace(path, (json.dumps(_finite(dict(content)), indent=2) + "\n").encode())


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return value
