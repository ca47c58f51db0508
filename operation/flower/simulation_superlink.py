"""Flower's SuperLink as a process that does not outlive the one that started it.

`flower-superlink` knows no parent: were the command killed, it and all that it started would go on
for ever. Flower's own watch over parents does not help: it sends SIGINT from a thread, which
never wakes a simulation whose main thread is waiting for its workers.
"""

import os
import sys
import threading
import time
from pathlib import Path

from flwr.superlink.cli import flower_superlink

from operation import process_group


def main() -> None:
    """Serve until killed, or until the parent is gone: then clear up in its place."""
    parent = int(sys.argv.pop(1))
    home = Path(os.environ[process_group.MARK])
    threading.Thread(target=_outlive, args=(parent, home), daemon=True).start()
    flower_superlink()


def _outlive(parent: int, home: Path) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    process_group.clear(home)
    os._exit(1)


if __name__ == "__main__":
    main()
