"""Run a SuperNode and its couriers, which start and end together.

    python -m client_app.connect.supernode_runner PORT RECORD SUPERNODE-COMMAND...

PORT is the port of the SuperNode's API for its couriers, RECORD the file for message_record.py. The
command contains `--isolation=process`: Flower does not start the couriers, courier_pool.py forks
them. A secret that no other program gets gives them access to the SuperNode's tasks.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from operation.clock import Clock
from operation.flower.options_and_logs import SECRET_OPTION
from operation.processes import signals
from operation.processes.secret_pipe import secret_pipe

from .message_record import MessageRecord
from .supernode_output import SuperNodeOutput, say
from .watchdog import STUCK_SECONDS, Watchdog

LOST_MESSAGE = f"a message had no reply and no courier for {STUCK_SECONDS:.0f} s"
_END_SECONDS = 15.0


def main() -> NoReturn:
    """Run the SuperNode until it ends, and exit with its code."""
    port, record, command = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    code = SuperNodeRunner(port, record, command).run()
    sys.exit(code if code >= 0 else 128 - code)


class SuperNodeRunner:
    """A SuperNode that runs, and everything that belongs to it."""

    def __init__(
        self, port: int, record: Path, command: Sequence[str], clock: Clock | None = None
    ) -> None:
        self.port, self.secret = port, secrets.token_bytes(32)
        self._clock = clock or Clock()
        self._watchdog, self._record = Watchdog(self._clock), MessageRecord(record)
        self._parent = os.getppid()
        self._told_to_end: float | None = None
        self.supernode = self._start(command)

    def run(self) -> int:
        """Run tasks until the SuperNode ends or has to be killed; return its exit code."""
        output = SuperNodeOutput(self.supernode, self._read_line)
        with signals.caught(self._pass_on):
            from .courier_pool import CourierPool  # takes a second, in which the SuperNode starts

            pool = CourierPool(self.port, self.secret, self._watchdog, self._clock)
            while (code := self.supernode.poll()) is None:
                pool.poll()
                if self._told_to_end is None:
                    self._end_if_needed()
                elif self._clock.now() - self._told_to_end > _END_SECONDS:
                    self.supernode.kill()  # no other process would, if our parent was killed
                output.copy(pool.pause)
        output.copy(0)
        return code

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the SuperNode, which gets SIGTERM if this process ends."""
        tied = [
            sys.executable,
            "-P",
            "-m",
            "operation.processes.supervision",
            str(os.getpid()),
            *command,
        ]
        with secret_pipe(self.secret) as pipe:
            return subprocess.Popen(  # noqa: S603 (our caller's command)
                [*tied, f"{SECRET_OPTION}={pipe.path}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[pipe.descriptor],
            )

    def _read_line(self, line: str) -> None:
        self._watchdog.read_line(line)
        self._record.read_line(line)

    def _end_if_needed(self) -> None:
        if os.getppid() != self._parent:  # `feddc hospital connect` was killed
            self._end_supernode()
        elif self._watchdog.is_stuck:
            say(f"WARNING : {LOST_MESSAGE}: restarting the SuperNode")
            self._record.restarting()
            self._end_supernode()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._end_supernode()

    def _end_supernode(self) -> None:
        self._told_to_end = self._told_to_end or self._clock.now()
        self.supernode.terminate()


if __name__ == "__main__":
    main()
