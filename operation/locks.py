"""A lock between processes that ends with the process that holds it, and says who that is."""

from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from operation.disk_space import is_full


class LockHeld(Exception):
    """Another process holds the lock; `holder` is the text that it wrote into the lock's file."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is locked by {holder or 'another process'}")
        self.holder = holder


class ProcessLock:
    """A lock file that one process at a time can hold, until it releases the lock or ends.

    The file stays; what counts is the kernel's lock on it. Keep a reference to this object while
    the lock is needed: collected as garbage, it releases the lock.
    """

    def __init__(self, path: Path, *, mode: int = 0o600) -> None:
        self._path = path
        self._lock = _kernel_lock(path, mode)

    def acquire(self, holder: str) -> None:
        """Take the lock and write into its file who holds it; raise LockHeld if another does."""
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise LockHeld(self._path, _read(self._path)) from None
        try:
            self.write_holder(holder)
        except OSError as error:
            if not is_full(error):  # who holds it is only a hint
                raise

    def write_holder(self, holder: str) -> None:
        """Change the text that says who holds the lock."""
        self._path.write_text(holder, encoding="utf-8")

    def release(self) -> None:
        with suppress(OSError):  # the folder may be gone
            self.write_holder("")
        self._lock.release()


def lock_holder(path: Path) -> str | None:
    """Return what the holder of a lock wrote into its file, or None if no process holds it."""
    if not path.exists():
        return None
    lock = _kernel_lock(path, 0o600)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return _read(path)
    lock.release()
    return None


def _kernel_lock(path: Path, mode: int) -> FileLock:
    # `fallback_to_soft` would replace the kernel's lock by a file that outlives a killed process.
    return FileLock(path, mode=mode, thread_local=False, fallback_to_soft=False)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
