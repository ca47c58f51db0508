"""Time for code that waits: the real clock, which tests replace by one they move."""

import time


class Clock:
    """Real time."""

    def now(self) -> float:
        """Return seconds since an arbitrary start; never goes backwards."""
        return time.monotonic()

    def utc(self) -> float:
        """Return seconds since 1970; jumps when the machine's clock is set."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
