"""Ctrl-C, asked politely: the run ends after the leg it is in, and what is done is kept."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from operation import signals


@contextmanager
def leg_by_leg() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether Ctrl-C was pressed; pressed again, it interrupts."""
    pressed = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    with signals.caught(note, (signals.SIGINT,)):
        yield pressed.is_set
