"""A simulation's SuperLink, as a process that ends with the process that started it.

`flower-superlink` does not watch its parent: if the command were killed, the SuperLink and all its
processes would run forever. Flower's own watch over parents does not help: it sends SIGINT from a
thread, which never wakes a simulation whose main thread is waiting for its workers.
"""

import os
import sys
import threading
import time
from pathlib import Path

from operation.processes import process_group

from . import private_superlink


def main() -> None:
    """Serve until killed, or until the parent has ended; then clean up in its place."""
    parent = int(sys.argv.pop(1))
    home = Path(os.environ[process_group.MARK])
    threading.Thread(target=_outlive, args=(parent, home), daemon=True).start()
    private_superlink.serve()


def _outlive(parent: int, home: Path) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    process_group.clear(home)
    os._exit(1)


if __name__ == "__main__":
    main()
