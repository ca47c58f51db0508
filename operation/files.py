"""Durable files: written whole or not at all, and on the disk when the call returns."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from operation.disk_space import DiskFull, is_full

_ZEROS = bytes(1 << 20)


def write_new(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file that does not exist yet; an existing one is never overwritten.

    DiskFull says which file did not fit, and how much space it needs.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)  # whatever the umask
                file.write(data)
                file.flush()
                os.fsync(descriptor)
        except OSError:
            path.unlink()
            raise
    except OSError as error:
        if is_full(error):
            raise DiskFull(path, len(data)) from error
        raise


def replace(path: Path, data: bytes, *, mode: int = 0o644, to_owner: bool = False) -> None:
    """Write a file in place of an earlier one; a reader sees the old content or the new.

    `to_owner` is for commands that root may run: the file is the folder's owner's then.
    """
    draft = _draft(path)
    try:
        write_new(draft, data, mode=mode)
    except DiskFull as error:
        raise DiskFull(path, len(data)) from error
    if to_owner:
        give_to_owner(draft)
    draft.replace(path)
    sync_folder(path.parent)


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a draft to write, which takes the place of `path` at the end of the block.

    For writers that need a path instead of bytes. `durable=False` does not wait for the disk: a
    power cut may then lose the new content, for instance that of a checkpoint.
    """
    draft = _draft(path)
    try:
        yield draft
        if durable:
            sync_file(draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def overwrite_and_remove(path: Path) -> None:
    """Overwrite a file with zeros, on the disk, before it is removed.

    A drive or file system that writes every change to a new place keeps the old content.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        left = os.fstat(descriptor).st_size
        while left:
            left -= os.write(descriptor, _ZEROS[:left])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    path.unlink()
    sync_folder(path.parent)


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make a folder, or give an existing one these permissions."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)


def give_to_owner(path: Path) -> None:
    """Give what root has just created to the owner of the folder that it is in."""
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def is_private(path: Path) -> bool:
    """Return whether the file system keeps a file for this process's user alone."""
    status = path.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def sync_file(path: Path) -> None:
    """Wait until the file's content is on the disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Wait until the folder's list of files is on the disk."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _draft(path: Path) -> Path:
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # left by an interrupted process
    return draft


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
