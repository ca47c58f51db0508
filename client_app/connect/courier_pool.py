"""Fork couriers from a process that has already imported everything they need.

Flower's own executor starts a new Python for every message, which takes a second of imports. Here a
forked process runs Flower's unchanged code for each message. The SuperNode notices a killed courier
by its missing heartbeats.
"""

import gc
import os
import random
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import NoReturn

from client_app import courier as courier  # imported here, so that no fork has to
from operation.clock import Clock
from operation.flower.tasks import AcquiredTask, TaskSource, run_clientapp
from operation.processes import signals
from operation.processes.supervision import end_with_parent

from .supernode_output import say
from .watchdog import Watchdog

_HOST = "127.0.0.1"
# Seconds until the next poll: a fraction of the time since the last task, within limits. Short legs
# are delayed by hundredths of a second, and an idle hospital polls twice a second.
_PAUSE_FRACTION, _SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 0.05, 0.5
# A SuperNode hands out a task before its message is complete, and Flower's code sleeps for a second
# when a part is missing.
_SETTLE_SECONDS = 0.15


class CourierPool:
    """Acquires the SuperNode's tasks one by one, and forks a courier for each."""

    def __init__(
        self, port: int, secret: bytes, watchdog: Watchdog, clock: Clock | None = None
    ) -> None:
        self._clock = clock or Clock()
        self._address = f"{_HOST}:{port}"
        self._tasks = TaskSource(self._address, secret)
        self._watchdog = watchdog
        self._couriers: set[int] = set()
        self._last_task = self._clock.now()
        gc.freeze()  # else garbage collection in a fork would copy this process's memory

    @property
    def pause(self) -> float:
        """Seconds to wait until the next poll."""
        pause = _PAUSE_FRACTION * (self._clock.now() - self._last_task)
        return max(_SHORTEST_PAUSE, min(pause, _LONGEST_PAUSE))

    def poll(self) -> None:
        """Fork a courier for the next task, if there is one."""
        self._reap()
        if task := self._tasks.acquire():
            self._last_task = self._clock.now()
            self._launch(task)

    def _launch(self, task: AcquiredTask) -> None:
        if not task.is_for_a_clientapp:
            # The task expires, and the message is answered with an error.
            say(f"a task of kind {task.kind} is not for a courier")
            return
        runner = os.getpid()
        sys.stdout.flush()
        if (courier_pid := os.fork()) == 0:
            _run_courier(self._address, task.token, runner)
        self._couriers.add(courier_pid)
        self._watchdog.courier_started()

    def _reap(self) -> None:
        for pid in list(self._couriers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            self._couriers.remove(pid)
            self._watchdog.courier_ended(failed=status != 0)
            if os.WIFSIGNALED(status):
                number = signal.Signals(os.WTERMSIG(status)).name
                say(f"a courier was killed ({number})")


def _run_courier(address: str, token: str, runner: int) -> NoReturn:
    code = 1
    try:
        signals.restore_defaults()
        # Flower's own check for the parent does not interrupt a courier that waits for the agent.
        if end_with_parent(runner, signal.SIGKILL):
            random.seed()  # otherwise all couriers would retry at the same moments
            time.sleep(_SETTLE_SECONDS)
            run_clientapp(address, token, insecure=True, parent_pid=runner)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # skips the runner's clean-up handlers
