"""Means, deviations and paired differences over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# With fewer seeds the interval is too wide to be useful.
_FEWEST_FOR_INTERVAL = 5
# One or two seeds agree too easily by chance.
_FEWEST_FOR_VERDICT = 3
_WORDS = {1: "one seed", 2: "two seeds"}


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, with the largest deviation from it as in the paper's tables.

    `interval` is the 95 % confidence interval of the mean (Student's t), for five seeds or more.
    """

    mean: float
    max_deviation: float
    values: tuple[float, ...]
    interval: tuple[float, float] | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval, or the range of the seeds if there are too few for an interval."""
        return self.interval or (min(self.values), max(self.values))


def spread(values: Sequence[float], *, overlap: float = 0.0) -> Spread:
    """Return mean, largest deviation and, if there are enough values, the interval.

    Seeds that draw their test sets from the same examples are not independent. Then `overlap` is
    n_test / n_train, and the variance of the mean is (1/J + n_test / n_train)·S²: the corrected
    resampled t-test (Nadeau and Bengio, Inference for the Generalization Error, 2003).
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
    """Return `ahead`, `behind`, `undecided`, or that there are too few seeds for a verdict.

    The interval decides; with three or four seeds, all of them must agree.
    """
    if len(gain.values) < _FEWEST_FOR_VERDICT:
        return f"{_WORDS[len(gain.values)]}: no verdict"
    low, high = gain.bounds
    if low > 0:
        return "ahead"
    return "behind" if high < 0 else "undecided"
