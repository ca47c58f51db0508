"""Means, deviations and paired differences over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Fewer seeds give an interval so wide that it misleads more than it tells.
_FEWEST_FOR_INTERVAL = 5
# That one or two seeds agree happens by chance.
_FEWEST_FOR_VERDICT = 3
_WORDS = {1: "one seed", 2: "two seeds"}


@dataclass(frozen=True)
class Spread:
    """A mean over seeds; `max_deviation` as in the paper's tables, `interval` holds the mean with
    95 % confidence (Student's t), where there are five seeds or more."""

    mean: float
    max_deviation: float
    values: tuple[float, ...]
    interval: tuple[float, float] | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval; with fewer seeds their range."""
        return self.interval or (min(self.values), max(self.values))


def spread(values: Sequence[float], *, overlap: float = 0.0) -> Spread:
    """Return mean, largest deviation from it and, if there are enough values, its interval.

    Where seeds draw their test sets from the same examples, they are no independent trials, and
    `overlap` is n_test / n_train: the corrected resampled t-test (Nadeau and Bengio, Inference for
    the Generalization Error, 2003) has the variance of the mean as (1/J + n_test / n_train)·S².
    """
    mean = sum(values) / len(values)
    deviation = max(abs(value - mean) for value in values)
    interval = None
    if len(values) >= _FEWEST_FOR_INTERVAL:
        from scipy.stats import t  # slow to import

        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        of_mean = variance * (1 / len(values) + overlap)
        half = float(t.ppf(0.975, len(values) - 1)) * math.sqrt(of_mean)
        interval = (mean - half, mean + half)
    return Spread(mean, deviation, tuple(values), interval)


def verdict(gain: Spread) -> str:
    """Say what a paired difference supports: `ahead`, `behind`, `undecided`, or that there are too
    few seeds for any verdict.

    With an interval, that decides; with three or four seeds all of them must agree.
    """
    if len(gain.values) < _FEWEST_FOR_VERDICT:
        return f"{_WORDS[len(gain.values)]}: no verdict"
    low, high = gain.bounds
    if low > 0:
        return "ahead"
    return "behind" if high < 0 else "undecided"
