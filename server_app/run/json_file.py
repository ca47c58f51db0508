"""JSON files of a run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operation import files
from operation.runs.event_file import finite


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object atomically."""
    files.replace(path, (json.dumps(finite(dict(content)), indent=2) + "\n").encode())
