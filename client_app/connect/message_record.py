"""When the SuperNode last received and answered a message, and was last restarted for a lost one.

`feddc hospital connect` writes it to the hospital's `transport` folder, for `feddc hospital check`.
"""

import json
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from operation import files
from operation.flower.options_and_logs import DONE, RECEIVED

FILE_NAME = "messages.json"
_MOST_CHARACTERS = 1000
_FAR_FUTURE = 1e11


@dataclass(frozen=True)
class MessageTimes:
    """Times in seconds since 1970; None for what has not happened yet."""

    received: float | None = None
    answered: float | None = None
    restarted: float | None = None
    restarts: int = 0

    @staticmethod
    def read(file: Path) -> "MessageTimes | None":
        """Read the file; None if there is none that can be read.

        The courier's user writes it, and hostile code can run as that user.
        """
        try:
            if not stat.S_ISREG(file.lstat().st_mode):
                return None
            with file.open(encoding="utf-8") as opened:
                values: dict[str, Any] = json.loads(opened.read(_MOST_CHARACTERS))
            times = MessageTimes(**values)
        except (OSError, ValueError, TypeError):
            return None
        moments = (times.received, times.answered, times.restarted)
        if any(moment is not None and not _is_moment(moment) for moment in moments):
            return None
        return times if _is_moment(times.restarts) and isinstance(times.restarts, int) else None


def _is_moment(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < _FAR_FUTURE


@dataclass
class MessageRecord:
    """Follows the SuperNode's log, and writes down when messages came and went."""

    file: Path
    now: Callable[[], float] = time.time
    times: MessageTimes = field(init=False)

    def __post_init__(self) -> None:
        self.times = MessageTimes.read(self.file) or MessageTimes()

    def read_line(self, line: str) -> None:
        """Take in a line of the SuperNode's log."""
        if RECEIVED in line:
            self._write(replace(self.times, received=self.now()))
        elif any(words in line for words in DONE):
            self._write(replace(self.times, answered=self.now()))

    def restarting(self) -> None:
        """Write down that a message was lost and the SuperNode is restarted."""
        restarts = self.times.restarts + 1
        self._write(replace(self.times, restarted=self.now(), restarts=restarts))

    def _write(self, times: MessageTimes) -> None:
        self.times = times
        with suppress(OSError), files.replacing(self.file, durable=False) as draft:
            draft.write_text(json.dumps(asdict(times)), encoding="utf-8")
