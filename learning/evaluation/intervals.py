"""95 % confidence intervals that keep their coverage with few examples.

Proportions have Wilson's score interval. The area under the ROC curve (AUC) has Newcombe's method
5 (R. G. Newcombe, Statistics in Medicine 25 (2006) 559-573): a score interval on Hanley and
McNeil's variance. DeLong's interval and the bootstrap cover 72 to 87 % with five and five patients.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import rankdata

_Z = 1.959963984540054  # the normal distribution's 97.5 % point
_TINY = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


def proportion(hits: int, of: int) -> Estimate:
    """Return hits/of with Wilson's score interval."""
    if of < 1:
        raise ValueError("a proportion needs at least one example")
    value, squared = hits / of, _Z**2
    centre = (hits + squared / 2) / (of + squared)
    half = _Z * math.sqrt(hits * (of - hits) / of + squared / 4) / (of + squared)
    # Exactly 0 and 1 where the formula gives 1e-17.
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == of else min(1.0, centre + half)
    return Estimate(value, low, high)


def mean_of(parts: Sequence[Estimate]) -> Estimate:
    """Return the mean of independent proportions; its interval combines theirs.

    The distances to the limits add up like standard errors (Zou and Donner's MOVER).
    """
    value = sum(part.value for part in parts) / len(parts)
    below = math.hypot(*(part.value - part.low for part in parts)) / len(parts)
    above = math.hypot(*(part.high - part.value for part in parts)) / len(parts)
    return Estimate(value, max(0.0, value - below), min(1.0, value + above))


def area_under_curve(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> Estimate:
    """Return the AUC, where ties count a half, with the interval of Newcombe's method 5."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        raise ValueError("an AUC needs examples of both classes")
    ranks = rankdata(scores)
    above = float(ranks[positive].sum()) - positives * (positives + 1) / 2
    value = above / (positives * negatives)
    return Estimate(value, *auc_limits(value, positives, negatives))


def auc_limits(value: float, positives: int, negatives: int) -> tuple[float, float]:
    """Return the two AUCs that lie 1.96 of their own standard errors from the observed one."""

    def gap(area: float) -> float:
        return (area - value) ** 2 - _Z**2 * _variance(area, positives, negatives)

    low = 0.0 if value <= _TINY else float(brentq(gap, 0.0, min(value, 1 - _TINY)))
    high = 1.0 if value >= 1 - _TINY else float(brentq(gap, max(value, _TINY), 1.0))
    return low, high


def _variance(area: float, positives: int, negatives: int) -> float:
    """Hanley and McNeil's variance of an AUC, with both sample sizes replaced by their mean."""
    others = (positives + negatives) / 2 - 1
    spread = 1 + others * (1 - area) / (2 - area) + others * area / (1 + area)
    return area * (1 - area) * spread / (positives * negatives)
