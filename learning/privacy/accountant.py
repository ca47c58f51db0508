"""The privacy loss ε of a sequence of noised releases, for a given δ.

Gaussians without sampling are together one Gaussian, whose ε has a formula (Balle & Wang 2018).
Poisson batches are composed with privacy loss distributions (`dp_accounting.pld`), which are tight:
Rényi accounting states an ε that is 7–9 % larger for the same releases.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from .sampled import SampledReleases, sampled_epsilon

_TOLERANCE = 1e-4
# Beyond them ε is in the hundreds or thousands. It is called infinite, because a hostile descriptor
# with next to no noise would otherwise fill the memory.
_LEAST_NOISE, _WIDEST = 0.04, 100.0
_ROUNDING = 1e-12  # of ε by the formula, upwards


@dataclass(frozen=True, order=True)
class Release:
    """`count` releases with Gaussian noise.

    `multiplier` is the noise's standard deviation divided by the sensitivity: by how much one
    patient (or hospital) can change the released value. `sampling_rate` is the probability with
    which a patient is in the batch; below 1 the batches must be secret and drawn by Poisson
    sampling.
    """

    multiplier: float
    sampling_rate: float = 1.0
    count: int = 1

    def __post_init__(self) -> None:
        if not (self.multiplier >= 0 and 0 < self.sampling_rate <= 1 and self.count >= 0):
            raise ValueError(
                "a release needs a multiplier of at least 0, a sampling rate in (0, 1] and a "
                f"count of at least 0, got {self}"
            )


def epsilon(releases: Iterable[Release], delta: float) -> float:
    """Return ε of all releases together; infinity where one has no noise."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")
    counted = [release for release in releases if release.count]
    if not counted:
        return 0.0
    if any(release.multiplier < _LEAST_NOISE for release in counted):
        return math.inf
    full, sampled = _merged(counted)
    if _width(full, sampled) > _WIDEST:
        return math.inf
    if not sampled:
        return gaussian_epsilon(math.sqrt(full), delta)
    return _sampled_epsilon(sampled, full, _width(full, sampled), delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return ε of one Gaussian whose sensitivity is μ deviations; never below the exact value.

    Balle & Wang 2018, theorem 8: δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).
    """
    from scipy.special import log_ndtr, ndtr

    def exceeds(epsilon: float) -> bool:
        above = math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        return bool(ndtr(mu / 2 - epsilon / mu) - above > delta)

    if not exceeds(0.0):
        return 0.0
    # The upper end is the bound of concentrated differential privacy (Bun & Steinke 2016).
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    while low < (middle := (low + high) / 2) < high and high - low > _ROUNDING * high:
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def noise_for_epsilon(
    target: float, delta: float, *, count: int, sampling_rate: float = 1.0
) -> float:
    """Return the smallest multiplier with which `count` releases stay within ε = `target`."""
    return smallest_noise(
        lambda multiplier: [Release(multiplier, sampling_rate, count)], target, delta
    )


def smallest_noise(
    releases: Callable[[float], Iterable[Release]], target: float, delta: float
) -> float:
    """Return the smallest scale of the noise whose `releases(scale)` stay within ε = `target`."""
    if not target > 0:
        raise ValueError(f"epsilon must be more than 0, got {target}")

    from scipy.optimize import brentq

    @cache
    def excess(log_scale: float) -> float:
        return math.log(epsilon(releases(math.exp(log_scale)), delta) / target)

    # ε falls about as 1/scale or faster: the excess says where to look for the other side.
    low = high = 0.0
    while excess(low) <= 0:
        high, low = low, low + min(-0.5, excess(low))
    while excess(high) > 0:
        low, high = high, high + max(0.5, excess(high))
    root = float(brentq(excess, low, high, xtol=_TOLERANCE / 4))
    while excess(root) > 0:
        root += _TOLERANCE / 4
    return math.exp(root)


def geyer_epsilon(multiplier: float, delta: float) -> float:
    """Return the ε that the paper prints for σ: one release, and only where it is at most 1.

    The classical Gaussian mechanism, σ = √(2 ln(1.25/δ))/ε (Geyer et al. 2017, after Dwork & Roth).
    It counts a single release of sensitivity S, while a hospital releases in every leg and can
    change an update by 2S: a label for comparison, no promise.
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / multiplier if multiplier else math.inf


def _merged(releases: Iterable[Release]) -> tuple[float, SampledReleases]:
    """Return Σ count/multiplier² of the releases without sampling, and the others by kind.

    Gaussians compose exactly: together they are one whose 1/multiplier² is the sum. Kinds are in
    the order of their last releases.
    """
    counts: dict[tuple[float, float], int] = {}
    for release in releases:
        kind = (release.multiplier, release.sampling_rate)
        counts[kind] = counts.pop(kind, 0) + release.count
    full = math.fsum(count / m**2 for (m, rate), count in counts.items() if rate == 1)
    return full, tuple((m, rate, count) for (m, rate), count in counts.items() if rate < 1)


def _width(full: float, sampled: SampledReleases) -> float:
    """Return roughly the deviation of the privacy loss; ε is about half of its square, or more."""
    squares = (count * rate**2 * math.expm1(m**-2) for m, rate, count in sampled)
    return math.sqrt(full + sum(squares))


# A leg asks twice: whether the budget covers it, and for the audit log.
_sampled_epsilon = lru_cache(maxsize=16)(sampled_epsilon)
