"""Free disk space, and what an experiment needs of it."""

import shutil
from pathlib import Path
from typing import Literal

LOW_BYTES, TOO_FEW_BYTES = 1_000_000_000, 100_000_000


def free_bytes(folder: Path) -> int:
    """Return the space that is free in the file system of a folder."""
    return shutil.disk_usage(folder).free


def verdict(free: int) -> Literal["fine", "warning", "wrong"]:
    """Judge the free space: models and logs of an experiment need some hundred megabytes."""
    if free < TOO_FEW_BYTES:
        return "wrong"
    return "warning" if free < LOW_BYTES else "fine"
