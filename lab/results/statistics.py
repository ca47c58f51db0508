"""Means, deviations and paired differences over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Fewer seeds give an interval so wide that it misleads more than it tells.
_FEWEST_FOR_INTERVAL = 5


@dataclass(frozen=True)
class Spread:
    """A mean over seeds; `max_deviation` as in the paper's tables, `interval` holds the mean with
    95 % confidence (Student's t), where there are five seeds or more."""

    mean: float
    max_deviation: float
    values: tuple[float, ...]
    interval: tuple[float, float] | None = None


def spread(values: Sequence[float]) -> Spread:
    """Return mean, largest deviation from it and, if there are enough values, its interval."""
    mean = sum(values) / len(values)
    deviation = max(abs(value - mean) for value in values)
    interval = None
    if len(values) >= _FEWEST_FOR_INTERVAL:
        from scipy.stats import t  # slow to import

        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        half = float(t.ppf(0.975, len(values) - 1)) * math.sqrt(variance / len(values))
        interval = (mean - half, mean + half)
    return Spread(mean, deviation, tuple(values), interval)


def verdict(gain: Spread) -> str:
    """Say what a paired difference supports: `ahead`, `behind` or `no difference`.

    With an interval, that decides; with fewer seeds all of them must agree.
    """
    low, high = gain.interval or (min(gain.values), max(gain.values))
    if low > 0:
        return "ahead"
    return "behind" if high < 0 else "no difference"
