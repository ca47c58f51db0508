"""Free disk space, what an experiment needs of it, and disks that are full."""

import errno
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


class DiskFull(OSError):
    """There is no space left for a file; nothing of it was kept."""

    def __init__(self, path: Path, needed: int) -> None:
        super().__init__(errno.ENOSPC, "no space left", str(path))
        self._needed = needed

    def __str__(self) -> str:
        return f"no space left for {self.filename}: {byte_size(self._needed)} are needed"


class Reserve:
    """A file that keeps space on a disk for what must be written when it is full."""

    def __init__(self, path: Path, size: int = 1 << 20) -> None:
        self._path = path
        try:
            path.write_bytes(bytes(size))
        except OSError as error:
            if not is_full(error):
                raise

    def release(self) -> None:
        """Give the space back."""
        self._path.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Return whether an operation failed because a disk, or a user's part of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def byte_size(count: float) -> str:
    """Format a number of bytes, e.g. `4.2 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
