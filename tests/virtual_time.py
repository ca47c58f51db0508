"""asyncio with a clock that jumps: when nothing is left to do, the next timer is due at once.

Everything a test talks to must live in its own loop (coroutines, Unix sockets): what another
process or thread still works on would be overtaken.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits for a timer, but moves the clock on by as much as it would have waited."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout is not None and timeout > 0:
            self.jumped += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0. Its `time()` is what `asyncio.sleep`, `timeout` and `wait_for` go by."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.jumped


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, without waiting for time to pass."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(test)
