"""A clock that a test moves: sleeping takes no time."""

import time

from operation.clock import Clock

_START = 1_800_000_000.0  # some day in 2027


class FakeClock(Clock):
    """Stands still until something sleeps or the test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def utc(self) -> float:
        return _START + self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        time.sleep(0)  # lets other threads run, which a real pause would
