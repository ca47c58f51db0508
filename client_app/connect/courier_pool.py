"""Couriers from a warm process: each costs a fork, not a second of imports.

Flower's own executor starts a new Python for every message. This process has imported all that a
ClientApp's process needs, and has a copy of itself run Flower's code for it, unchanged: a process
of its own, as ever. One that is killed is noticed by the SuperNode when its heartbeats cease.
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

from client_app import courier as courier  # imported for the copies, which find it done
from operation import signals
from operation.clock import Clock
from operation.flower.tasks import AcquiredTask, TaskSource, run_clientapp

_HOST = "127.0.0.1"
# How long until the next look for a task: a share of the time since the last, within limits. So a
# leg of seconds waits for hundredths, and a hospital with nothing to do asks twice a second.
_SHARE, _SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 0.05, 0.5
# A SuperNode hands out the task before it has the whole message, and a courier that finds a part
# missing sleeps for a second.
_SETTLE_SECONDS = 0.15
# Flower notices a killed courier after 60 s, but not one killed before it had its message: then
# the SuperNode would wait for ever.
_STUCK_SECONDS = 90.0


class Couriers:
    """Takes the SuperNode's tasks one by one, and forks a courier for each."""

    def __init__(self, port: int, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._address = f"{_HOST}:{port}"
        self._tasks = TaskSource(self._address)
        self._couriers: set[int] = set()
        self._last_task = self._clock.now()
        self._killed: float | None = None
        gc.freeze()  # else the copies' garbage collection would copy this process's memory

    @property
    def pause(self) -> float:
        """How long to wait until the next look."""
        share = _SHARE * (self._clock.now() - self._last_task)
        return max(_SHORTEST_PAUSE, min(share, _LONGEST_PAUSE))

    @property
    def is_stuck(self) -> bool:
        """Whether a courier was killed, and no task has come for longer than that takes Flower."""
        return self._killed is not None and self._clock.now() - self._killed > _STUCK_SECONDS

    def look(self) -> None:
        """Fork a courier for the next task, if there is one."""
        self._bury()
        if task := self._tasks.acquire():
            self._last_task, self._killed = self._clock.now(), None
            self._launch(task)

    def _launch(self, task: AcquiredTask) -> None:
        if not task.is_for_a_clientapp:
            # Left alone it expires, which answers the message with an error.
            print(f"a task of kind {task.kind} is none for a courier", flush=True)  # noqa: T201
            return
        executor = os.getpid()
        sys.stdout.flush()
        if (courier_pid := os.fork()) == 0:
            _be_a_courier(self._address, task.token, executor)
        self._couriers.add(courier_pid)

    def _bury(self) -> None:
        for pid in list(self._couriers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            self._couriers.remove(pid)
            if os.WIFSIGNALED(status):
                number = signal.Signals(os.WTERMSIG(status)).name
                print(f"a courier was killed ({number})", flush=True)  # noqa: T201
                self._killed = self._clock.now()


def _be_a_courier(address: str, token: str, executor: int) -> NoReturn:
    code = 1
    try:
        signals.restore_defaults()
        random.seed()  # its pauses are not to be those of all the others
        time.sleep(_SETTLE_SECONDS)
        run_clientapp(address, token, insecure=True, parent_pid=executor)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # nothing of the executor's is cleared up twice
