"""Graceful Ctrl-C: the run stops after the current leg and keeps what is done."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from operation.processes import signals


@contextmanager
def leg_by_leg() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second Ctrl-C interrupts."""
    pressed = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    with signals.caught(note, (signals.SIGINT,)):
        yield pressed.is_set
