"""Ends what a test has started when the tests' process is gone, by whatever signal.

    with janitor(folder): ...

Services are made to outlive the command that starts them, and SIGTERM or SIGKILL gives a test no
time to stop them. So another process, which no signal to the tests reaches, waits until the block
or the tests' process has ended. Then it kills every process whose command line or environment
names the test's folder, and removes the folder.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_QUIET_SECONDS = 0.5  # a process that is being forked is seen at the next look


@contextmanager
def janitor(folder: Path) -> Iterator[None]:
    """Watch over the processes of a test that works in this folder, which only it has."""
    # Its standard input is closed with this process: nobody writes to it.
    watching = subprocess.Popen(
        [sys.executable, "-m", "tests.janitor", str(folder)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield
    finally:
        watching.communicate()


def processes_of(folder: Path) -> list[int]:
    """Return the processes, except this one, that name the folder."""
    name = os.fsencode(folder)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            for file in ("cmdline", "environ"):
                # It has ended, or is another user's. An agent's environment is readable by nobody.
                with suppress(OSError):
                    if name in (entry / file).read_bytes():
                        found.append(int(entry.name))
                        break
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    sys.stdin.read()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < _QUIET_SECONDS:
        if left := processes_of(folder):
            quiet_since = time.monotonic()
            for pid in left:
                with suppress(ProcessLookupError):
                    # A service leads a group of its own; nginx hides what its workers belong to.
                    leads = os.getpgid(pid) == pid
                    (os.killpg if leads else os.kill)(pid, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
