"""Progress without widgets: one line on stderr that is written again and again."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_QUIET_SECONDS, _DRAW_SECONDS = 2.0, 0.5


@contextmanager
def progress_line(
    text: Callable[[], str],
    *,
    shown: bool = True,
    quiet_seconds: float = _QUIET_SECONDS,
) -> Iterator[None]:
    """Show what `text` returns while something takes longer than two seconds."""
    over = threading.Event()

    def show() -> None:
        if over.wait(quiet_seconds):
            return
        width = 0
        while True:
            line = text()
            sys.stderr.write(f"\r{line:{width}}")
            sys.stderr.flush()
            width = len(line)
            if over.wait(_DRAW_SECONDS):
                break
        sys.stderr.write(f"\r{'':{width}}\r")

    thread = threading.Thread(target=show, daemon=True)
    if shown:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if shown:
            thread.join()
