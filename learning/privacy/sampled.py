"""ε of releases from Poisson batches: privacy loss distributions, discretised and composed.

A composition takes tenths of a second, and a hospital asks after every leg, for its whole history.
So what was composed is kept: a leg adds to the last kind of releases only, and the composition of
all kinds before it is used again.
"""

import math
from functools import lru_cache
from typing import Any

# (multiplier, sampling rate, count), those last that will grow next.
SampledReleases = tuple[tuple[float, float, int], ...]

# The step of the privacy loss, for a loss as wide as 1. It grows with the width: ε changes by less
# than a ten-thousandth, and a large ε takes no longer than a small one.
_INTERVAL = 1e-4


def sampled_epsilon(sampled: SampledReleases, gaussian: float, width: float, delta: float) -> float:
    """Return ε of sampled releases and of one Gaussian with μ² = `gaussian` together.

    `width` is roughly the deviation of their privacy loss.
    """
    # A power of two: the same for many legs, so that their compositions can be used again.
    interval = _INTERVAL * 2.0 ** max(0, math.ceil(math.log2(width)))
    composed = _composed(sampled, interval)
    if gaussian:
        composed = composed.compose(_one(1 / math.sqrt(gaussian), 1.0, interval))
    return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=4)
def _composed(sampled: SampledReleases, interval: float) -> Any:
    """Return the distribution of all releases; a leg finds that of all kinds but the last."""
    *earlier, (multiplier, rate, count) = sampled
    last = _one(multiplier, rate, interval).self_compose(count)
    return _composed(tuple(earlier), interval).compose(last) if earlier else last


@lru_cache(maxsize=4)
def _one(multiplier: float, rate: float, interval: float) -> Any:
    # Imported where it is used: it takes a second, and most commands never ask for an ε.
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=interval
    )
