"""A file system of a few megabytes, to be filled up: what a full disk really does."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from operation.disk_space import is_full


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """Mount an empty file system on a folder; skip the test where that is not allowed."""
    place.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"this user may not mount a file system to fill: {made.stderr.strip()}")
    try:
        yield place
    finally:
        # Lazily: a process that is being killed may still have a file open.
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Write until no byte is free; return the file, whose removal frees all of it."""
    path = place / "filler"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    os.write(descriptor, bytes(size))
            except OSError as error:
                if not is_full(error):
                    raise
    finally:
        os.close(descriptor)
    return path
