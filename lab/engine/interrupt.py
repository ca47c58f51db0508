"""Graceful Ctrl-C: the run stops after the current leg and keeps what is done."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def leg_by_leg() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second Ctrl-C interrupts."""
    pressed = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.getsignal(signal.SIGINT)
    # A signal that is ignored stays so: that is how nohup keeps a command alive.
    catches = before is not signal.SIG_IGN
    if catches:
        signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        if catches:
            signal.signal(signal.SIGINT, before)
