"""The SuperNode and its couriers, which live and end together.

    python -m client_app.connect.supernode_runner PORT SUPERNODE-COMMAND...

PORT is that of the SuperNode's API for its couriers, and the command says `--isolation=process`:
the couriers are not Flower's to start, but forked here (see couriers.py).
"""

import os
import signal
import subprocess
import sys
from types import FrameType
from typing import NoReturn

from operation.clock import Clock

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_END_SECONDS = 15.0


def main() -> NoReturn:
    """Run the SuperNode until it ends; end as it did."""
    port, command = int(sys.argv[1]), sys.argv[2:]
    tied = [sys.executable, "-P", "-m", "operation.supervision", str(os.getpid()), *command]
    supernode = subprocess.Popen(tied)  # noqa: S603 (our caller's command)
    clock, asked = Clock(), list[float]()

    def pass_on(number: int, frame: FrameType | None) -> None:
        asked.append(clock.now())
        supernode.terminate()

    for number in _SIGNALS:
        signal.signal(number, pass_on)
    code = _accompany(supernode, port, asked, clock)
    sys.exit(code if code >= 0 else 128 - code)


def _accompany(
    supernode: subprocess.Popen[bytes], port: int, asked: list[float], clock: Clock
) -> int:
    """Have the SuperNode's tasks done until it ends, or is killed; return its exit code.

    `asked` has the times at which it was asked to end.
    """
    from .courier_pool import Couriers  # takes a second, in which the SuperNode starts

    couriers = Couriers(port)
    while (code := supernode.poll()) is None:
        couriers.look()
        if couriers.is_stuck:
            print("a courier was killed and nothing has come since: starting again", flush=True)  # noqa: T201
            supernode.terminate()
            supernode.wait()
            return 1
        if asked and clock.now() - asked[0] > _END_SECONDS:
            supernode.kill()  # nobody else would, where `feddc hospital connect` was killed
        clock.sleep(couriers.pause)
    return code


if __name__ == "__main__":
    main()
