"""The SuperNode and its couriers, which live and end together.

    python -m client_app.connect.supernode_runner PORT SUPERNODE-COMMAND...

PORT is that of the SuperNode's API for its couriers, and the command says `--isolation=process`:
the couriers are not Flower's to start, but forked here (see couriers.py).
"""

import os
import subprocess
import sys
import time
from types import FrameType
from typing import NoReturn

from operation import signals


def main() -> NoReturn:
    """Run the SuperNode until it ends; end as it did."""
    port, command = int(sys.argv[1]), sys.argv[2:]
    tied = [sys.executable, "-P", "-m", "operation.supervision", str(os.getpid()), *command]
    supernode = subprocess.Popen(tied)  # noqa: S603 (our caller's command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        supernode.terminate()

    signals.catch(pass_on)
    code = _accompany(supernode, port)
    sys.exit(code if code >= 0 else 128 - code)


def _accompany(supernode: subprocess.Popen[bytes], port: int) -> int:
    """Have the SuperNode's tasks done until it ends; return its exit code."""
    from .courier_pool import Couriers  # takes a second, in which the SuperNode starts

    couriers = Couriers(port)
    while (code := supernode.poll()) is None:
        couriers.look()
        if couriers.is_stuck:
            print("a courier was killed and nothing has come since: starting again", flush=True)  # noqa: T201
            supernode.terminate()
            supernode.wait()
            return 1
        time.sleep(couriers.pause)
    return code


if __name__ == "__main__":
    main()
