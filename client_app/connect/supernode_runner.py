"""Run a SuperNode and its couriers, which start and end together.

    python -m client_app.connect.supernode_runner PORT SUPERNODE-COMMAND...

PORT is the port of the SuperNode's API for its couriers. The command contains
`--isolation=process`: Flower does not start the couriers, courier_pool.py forks them.
"""

import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> NoReturn:
    """Run the SuperNode until it ends, and exit with its code."""
    port, command = int(sys.argv[1]), sys.argv[2:]
    tied = [sys.executable, "-P", "-m", "operation.supervision", str(os.getpid()), *command]
    supernode = subprocess.Popen(tied)  # noqa: S603 (our caller's command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        supernode.terminate()

    for number in _SIGNALS:
        signal.signal(number, pass_on)
    code = _run_tasks(supernode, port)
    sys.exit(code if code >= 0 else 128 - code)


def _run_tasks(supernode: subprocess.Popen[bytes], port: int) -> int:
    """Run the SuperNode's tasks until it ends; return its exit code."""
    from .courier_pool import CourierPool  # takes a second, in which the SuperNode starts

    pool = CourierPool(port)
    while (code := supernode.poll()) is None:
        pool.poll()
        if pool.is_stuck:
            print("a courier was killed and no task has come since: restarting", flush=True)  # noqa: T201
            supernode.terminate()
            supernode.wait()
            return 1
        time.sleep(pool.pause)
    return code


if __name__ == "__main__":
    main()
