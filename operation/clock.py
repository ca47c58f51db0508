"""Time for code that waits: the real clock, which tests replace by one they move."""

import time


class Clock:
    """Real time."""

    def now(self) -> float:
        """Return seconds since an arbitrary start; never goes backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
