"""What a SuperNode prints: copied to our own output, and read line by line.

Without a thread, because the runner forks; and without an end, if nobody reads our output.
"""

import os
import select
import subprocess
from collections.abc import Callable
from contextlib import suppress

_STDOUT = 1
_CHUNK_BYTES = 65536


class SuperNodeOutput:
    """The output of a SuperNode that was started with a pipe."""

    def __init__(self, supernode: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> None:
        assert supernode.stdout is not None  # noqa: S101 (a pipe)
        self._open = [supernode.stdout.fileno()]  # empty when it has ended
        self._on_line = on_line
        self._rest = b""

    def copy(self, seconds: float) -> None:
        """Copy what there is; wait for at most `seconds` if there is nothing."""
        while select.select(self._open, [], [], seconds)[0]:
            data = os.read(self._open[0], _CHUNK_BYTES)
            if not data:
                self._open.clear()
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                _write(line + b"\n")
                self._on_line(line.decode(errors="replace"))
            seconds = 0


def say(text: str) -> None:
    """Print a line of our own."""
    _write(f"{text}\n".encode())


def _write(data: bytes) -> None:
    with suppress(OSError):  # nobody reads, if `feddc hospital connect` was killed
        os.write(_STDOUT, data)
