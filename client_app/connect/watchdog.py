"""A watchdog over a SuperNode's messages: each is answered, or a courier works on it.

A SuperNode processes one message at a time and waits for its reply, without a limit. If the task is
lost (a courier was killed before it had the message) or another program took it, the SuperNode
receives nothing more until it is restarted.
"""

import math

from operation.clock import Clock
from operation.flower.options_and_logs import DONE, RECEIVED, REPLYING

# Flower itself answers for a courier that was killed with its message, after 60 s.
STUCK_SECONDS = 90.0


class Watchdog:
    """Follows the SuperNode's log and its couriers, and says when a message was lost."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._received: float | None = None  # when the message came that has no reply yet
        self._is_replying = False
        self._couriers = 0
        self._last_courier_ended = -math.inf
        self._last_courier_failed = False

    def read_line(self, line: str) -> None:
        """Take in a line of the SuperNode's log."""
        if RECEIVED in line:
            self._received, self._is_replying = self._clock.now(), False
        elif REPLYING in line:
            self._is_replying = True
        elif any(words in line for words in DONE):
            self._received, self._is_replying = None, False

    def courier_started(self) -> None:
        self._couriers += 1

    def courier_ended(self, *, failed: bool) -> None:
        self._couriers -= 1
        self._last_courier_ended, self._last_courier_failed = self._clock.now(), failed

    @property
    def is_stuck(self) -> bool:
        """Whether a message has no reply, and no courier has worked on it for 90 seconds."""
        if self._received is None or self._couriers:
            return False
        # An upload may take long; but parts that a failed courier left out never come.
        if self._is_replying and not self._last_courier_failed:
            return False
        idle_since = max(self._received, self._last_courier_ended)
        return self._clock.now() - idle_since > STUCK_SECONDS
