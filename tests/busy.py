"""Run a command beside processes that keep the CPUs busy, and stop them however it ends.

    python -m tests.busy [--hogs 4] [--times 1] COMMAND...

With --times the command is repeated until it has failed once or succeeded so often.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Each ends with this process, even if that is killed: it reads a pipe that closes then.
_HOG = """
import sys, threading
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
while not done.is_set():
    pass
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--hogs", type=int, default=4, help="busy processes")
    parser.add_argument("--times", type=int, default=1, help="repetitions of the command")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with hogs(options.hogs):
        for number in range(1, options.times + 1):
            if options.times > 1:
                print(f"run {number} of {options.times}", flush=True)  # noqa: T201
            if code := _run(options.command):
                return code
    return 0


def _run(command: list[str]) -> int:
    """Run a command to its end; a signal to stop is its own to act upon, and it may take a while.

    A terminal sends SIGINT to the command, too; SIGTERM is passed on.
    """
    process = subprocess.Popen(command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.terminate()

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, lambda number, frame: None)
    code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def hogs(count: int) -> Iterator[list[int]]:
    """Keep so many CPUs busy within the block."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            started.append(subprocess.Popen([sys.executable, "-c", _HOG], stdin=subprocess.PIPE))
        yield [hog.pid for hog in started]
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


if __name__ == "__main__":
    sys.exit(main())
