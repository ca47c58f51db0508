"""A clock that a test moves: sleeping takes no time."""

import time

from operation.clock import Clock


class FakeClock(Clock):
    """Stands still until something sleeps or the test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        time.sleep(0)  # lets other threads run, which a real pause would
