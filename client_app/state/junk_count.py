"""Counts refusals and repetitions, so that junk cannot fill the disk with lines about it.

A minute has a limited number of lines for each kind of refusal, more of them for requests that the
coordinator signed, which are evidence. What exceeds it is counted, and the count is written in one
line when the minute is over. While it goes on, only counts are written.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from operation.clock import Clock

_LINES_PER_MINUTE, _SIGNED_LINES_PER_MINUTE = 20, 120
_MINUTE = 60.0
_LIMITED = ("refusal", "repeated", "introduction")  # replies that contain nothing new

Key = tuple[str, str | None, bool]  # kind of reply, code of a refusal, is the request signed


@dataclass
class _Minute:
    began: float
    lines: int = 0
    counted: int = 0


class JunkCount:
    """The lines of the present minute, and the replies that got none, by kind and code."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minutes: dict[Key, _Minute] = {}

    def admits(self, kind: str, code: str | None, *, is_signed: bool) -> bool:
        """Return whether a reply gets a line of its own; else it is counted."""
        if kind not in _LIMITED:
            return True
        key = (kind, code, is_signed)
        minute = self._minutes.setdefault(key, _Minute(self._clock.now()))
        if minute.lines < _limit(key):
            minute.lines += 1
            return True
        minute.counted += 1
        return False

    def take_due(self, *, everything: bool = False) -> Iterator[tuple[Key, int]]:
        """Yield the counts of all minutes that are over, or of all, and begin new ones."""
        now = self._clock.now()
        for key, minute in list(self._minutes.items()):
            if now - minute.began < _MINUTE and not everything:
                continue
            if not minute.counted:
                del self._minutes[key]
                continue
            # After a flood the next minute has no lines but its count.
            self._minutes[key] = _Minute(now, lines=_limit(key))
            yield key, minute.counted


def _limit(key: Key) -> int:
    kind, _, is_signed = key
    # Whoever carries signed requests can repeat them, but can't make the coordinator's refused.
    return _SIGNED_LINES_PER_MINUTE if kind == "refusal" and is_signed else _LINES_PER_MINUTE
