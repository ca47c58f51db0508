"""Run a SuperNode and its couriers, which start and end together.

    python -m client_app.connect.supernode_runner PORT SUPERNODE-COMMAND...

PORT is the port of the SuperNode's API for its couriers. The command contains
`--isolation=process`: Flower does not start the couriers, courier_pool.py forks them.
"""

import os
import subprocess
import sys
from types import FrameType
from typing import NoReturn

from operation import signals
from operation.clock import Clock

_END_SECONDS = 15.0


def main() -> NoReturn:
    """Run the SuperNode until it ends, and exit with its code."""
    port, command = int(sys.argv[1]), sys.argv[2:]
    tied = [sys.executable, "-P", "-m", "operation.supervision", str(os.getpid()), *command]
    supernode = subprocess.Popen(tied)  # noqa: S603 (our caller's command)
    clock, stop_requests = Clock(), list[float]()

    def pass_on(number: int, frame: FrameType | None) -> None:
        stop_requests.append(clock.now())
        supernode.terminate()

    signals.catch(pass_on)
    code = _run_tasks(supernode, port, stop_requests, clock)
    sys.exit(code if code >= 0 else 128 - code)


def _run_tasks(
    supernode: subprocess.Popen[bytes], port: int, stop_requests: list[float], clock: Clock
) -> int:
    """Run the SuperNode's tasks until it ends or has to be killed; return its exit code.

    `stop_requests` are the times of the signals that were passed on to it.
    """
    from .courier_pool import CourierPool  # takes a second, in which the SuperNode starts

    pool = CourierPool(port)
    while (code := supernode.poll()) is None:
        pool.poll()
        if pool.is_stuck:
            print("a courier was killed and no task has come since: restarting", flush=True)  # noqa: T201
            supernode.terminate()
            supernode.wait()
            return 1
        if stop_requests and clock.now() - stop_requests[0] > _END_SECONDS:
            supernode.kill()  # no other process would, if `feddc hospital connect` was killed
        clock.sleep(pool.pause)
    return code


if __name__ == "__main__":
    main()
