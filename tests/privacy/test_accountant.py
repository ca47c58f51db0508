"""The accountant against the exact ε of composed Gaussians, and against a case by hand."""

import math
from itertools import pairwise

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from learning.privacy import Release, epsilon, noise_for_epsilon, smallest_noise

DELTA = 1e-5


def exact(mu: float, delta: float = DELTA) -> float:
    """ε of a Gaussian with sensitivity/deviation = μ, from the normal CDF (Balle & Wang 2018)."""

    def excess(eps: float) -> float:
        below = norm.cdf(mu / 2 - eps / mu)
        above = math.exp(eps + norm.logcdf(-mu / 2 - eps / mu))
        return float(below - above - delta)

    return float(brentq(excess, 0, mu**2 + 20 * mu + 1, xtol=1e-13))


@pytest.mark.parametrize(
    "releases",
    [
        [Release(1.0)],
        [Release(200.0)],
        [Release(8.0, count=200)],
        [Release(40.0, count=5000)],
        # Three experiments with different noise, in any order.
        [Release(20.0, count=40), Release(9.5, count=10), Release(30.0, count=150)],
        [Release(6.0 + 0.01 * i) for i in range(50)],
    ],
)
def test_epsilon_is_the_exact_one_to_a_thousandth(releases: list[Release]) -> None:
    mu = math.sqrt(sum(r.count / r.multiplier**2 for r in releases))
    assert exact(mu) <= epsilon(releases, DELTA) * (1 + 1e-9)
    assert epsilon(releases, DELTA) <= exact(mu) * 1.001
    assert epsilon(list(reversed(releases)), DELTA) == pytest.approx(epsilon(releases, DELTA))


def test_known_value_of_two_hundred_releases() -> None:
    # σ = 8, T = 200: exact 8.596; Rényi accounting would say 9.235.
    assert epsilon([Release(8.0, count=200)], DELTA) == pytest.approx(8.596, abs=0.001)


def test_poisson_batches_cost_less_than_full_ones_and_more_than_the_central_limit() -> None:
    rate, multiplier, count = 0.25, 4.0, 200
    sampled = epsilon([Release(multiplier, rate, count)], DELTA)
    assert sampled < epsilon([Release(multiplier, 1.0, count)], DELTA)
    # Dong, Roth & Su: the limit is Gaussian with μ = q √(T (e^(1/z²) − 1)).
    limit = exact(rate * math.sqrt(count * math.expm1(1 / multiplier**2)))
    assert sampled == pytest.approx(limit, rel=0.05)


def test_every_release_adds_to_epsilon() -> None:
    spent = [epsilon([Release(10.0, count=n), Release(5.0, 0.1, 2)], DELTA) for n in (0, 1, 2, 50)]
    assert all(less < more for less, more in pairwise(spent))


def test_no_release_costs_nothing_and_one_without_noise_everything() -> None:
    assert epsilon([], DELTA) == 0
    assert epsilon([Release(0.0, count=0)], DELTA) == 0
    assert epsilon([Release(3.0), Release(0.0)], DELTA) == math.inf


@pytest.mark.parametrize("target", [0.5, 8.0])
def test_noise_for_epsilon_is_the_smallest_that_fits(target: float) -> None:
    multiplier = noise_for_epsilon(target, DELTA, count=200)
    mu = math.sqrt(200) / multiplier
    assert exact(mu) <= target
    assert exact(mu * 1.001) > target


def test_smallest_noise_of_two_kinds_of_releases() -> None:
    def releases(scale: float) -> list[Release]:
        return [Release(scale, count=133), Release(scale / 2, count=67)]

    scale = smallest_noise(releases, 8.0, DELTA)
    assert exact(math.sqrt(133 + 67 * 4) / scale) == pytest.approx(8.0, rel=1e-3)


@pytest.mark.parametrize(
    ("multiplier", "rate", "count"), [(-1.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.1, 1), (1.0, 1.0, -1)]
)
def test_impossible_releases_are_refused(multiplier: float, rate: float, count: int) -> None:
    with pytest.raises(ValueError, match="a release needs"):
        Release(multiplier, rate, count)


def test_delta_must_be_a_probability() -> None:
    with pytest.raises(ValueError, match="delta must lie between 0 and 1"):
        epsilon([Release(1.0)], 0.0)


@pytest.mark.parametrize(
    "release", [Release(1e-9), Release(1e-200), Release(1e-9, 0.5), Release(0.3, 0.5, 10**9)]
)
def test_next_to_no_noise_has_no_epsilon_and_takes_no_memory(release: Release) -> None:
    assert epsilon([release], 1e-5) == math.inf
