"""Files of the study folder: whole or not at all, and secrets for their owner only."""

import os
from pathlib import Path


def write_new(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file that was not there before; a secret is never overwritten."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def replace(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Put new content in place of a file's, so that a reader never sees half of it."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # of a command that was interrupted
    write_new(draft, data, mode=mode)
    draft.replace(path)
    sync(path.parent)


def make_folder(path: Path, mode: int = 0o700) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)


def sync(folder: Path) -> None:
    """Wait until the folder's list of files is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
