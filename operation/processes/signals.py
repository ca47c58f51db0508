"""Signals that end a program: catch them, collect them, ignore them for a while.

A signal that is ignored when the program starts stays ignored: `nohup` relies on it.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGINT, SIGTERM, SIGHUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
ENDING = (SIGINT, SIGTERM, SIGHUP)
Handler = Callable[[int, FrameType | None], Any]


def catch(handler: Handler, numbers: Sequence[int] = ENDING) -> Mapping[int, Any]:
    """Call `handler` for these signals from now on; return the earlier handlers."""
    before = {n: h for n in numbers if (h := signal.getsignal(n)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    return before


@contextmanager
def caught(handler: Handler, numbers: Sequence[int] = ENDING) -> Iterator[None]:
    """Call `handler` for these signals within the block."""
    before = catch(handler, numbers)
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def collected(numbers: Sequence[int] = ENDING) -> Iterator[list[int]]:
    """Yield a list to which the signals that arrive within the block are appended."""
    arrived: list[int] = []
    with caught(lambda number, frame: arrived.append(number), numbers):
        yield arrived


@contextmanager
def ignored(numbers: Sequence[int] = ENDING) -> Iterator[None]:
    """Ignore these signals within the block, so that cleaning up is not interrupted.

    Outside the main thread, which alone may change handlers, the block runs as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        _restore(before)


def restore_defaults(numbers: Sequence[int] = ENDING) -> None:
    """Let these signals end this process, as a program expects that is started next."""
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def _restore(before: Mapping[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
