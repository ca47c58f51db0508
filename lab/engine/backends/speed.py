"""Progress and speed of a run, for display."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.engine.outcome import History

_PAUSE = 0.2  # seconds between two reports: drawing them must not slow the run down


@dataclass(frozen=True)
class Speed:
    """Progress of a run; `seconds_left` is estimated from the rounds done in this call."""

    round: int
    rounds: int
    client_rounds_per_s: float
    seconds: float
    seconds_left: float
    loss: float
    accuracy: float
    test_accuracy: float | None


class Speedometer:
    """Calls `listener` with the speed a few times a second, and after the last round."""

    clock = staticmethod(time.monotonic)

    def __init__(
        self, rounds: int, first_round: int, listener: Callable[[Speed], None] | None
    ) -> None:
        self._rounds, self._first = rounds, first_round
        self._listener = listener
        self._began = self.clock()
        self._reported = 0.0
        self._client_rounds = 0
        self._training_seconds = 0.0

    @property
    def seconds(self) -> float:
        return self.clock() - self._began

    @property
    def client_rounds_per_s(self) -> float:
        """The speed without the time of evaluations."""
        return self._client_rounds / max(self._training_seconds, 1e-9)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Measure the time of training, hand-over and aggregation."""
        began = self.clock()
        yield
        self._training_seconds += self.clock() - began

    def add(self, round_: int, client_rounds: int, history: History) -> None:
        """Record that `round_` rounds are done."""
        self._client_rounds += client_rounds
        if self._listener is None:
            return
        now = self.clock()
        if now - self._reported < _PAUSE and round_ < self._rounds:
            return
        self._reported = now
        loss, accuracy = history.latest()
        each = self.seconds / max(1, round_ - self._first)
        self._listener(
            Speed(
                round=round_,
                rounds=self._rounds,
                client_rounds_per_s=self.client_rounds_per_s,
                seconds=self.seconds,
                seconds_left=each * (self._rounds - round_),
                loss=loss,
                accuracy=accuracy,
                test_accuracy=history.test_accuracy,
            )
        )
