"""A curve over the rounds of a run, thinned out while it grows."""

from collections.abc import Sequence

Point = tuple[float, ...]  # x, then the values there


class Curve:
    """At most twice `limit` points, evenly spread over the run, and always the last one."""

    def __init__(self, limit: int = 500) -> None:
        self._limit = limit
        self._stride, self._added = 1, 0
        self._kept: list[Point] = []
        self._last: Point | None = None

    def add(self, x: float, *values: float | None) -> None:
        """Add a point; one that is not beyond the last replaces all from there on."""
        if self._last is not None and x <= self._last[0]:
            self._kept = [point for point in self._kept if point[0] < x]
            self._added = len(self._kept) * self._stride
        self._last = (x, *(float("nan") if value is None else value for value in values))
        if self._added % self._stride == 0:
            self._kept.append(self._last)
            if len(self._kept) > 2 * self._limit:
                self._kept, self._stride = self._kept[::2], 2 * self._stride
        self._added += 1

    @property
    def points(self) -> Sequence[Point]:
        if self._last is None or self._kept[-1:] == [self._last]:
            return self._kept
        return [*self._kept, self._last]

    def __len__(self) -> int:
        return len(self.points)

    def columns(self, digits: int = 5) -> list[list[float | None]]:
        """Return the points as columns for JSON: x, then each value, rounded; NaN is None."""
        columns = zip(*self.points, strict=True)
        return [[_rounded(value, digits) for value in column] for column in columns]


def _rounded(value: float, digits: int) -> float | None:
    return None if value != value else round(value, digits)
