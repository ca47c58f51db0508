"""Intervals: published and hand-computed values, and coverage with few patients."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score

from learning.evaluation.intervals import area_under_curve, auc_limits, mean_of, proportion

Z = norm.ppf(0.975)


@pytest.mark.parametrize(("hits", "of"), [(0, 1), (0, 8), (2, 8), (7, 8), (8, 8), (81, 263)])
def test_a_proportion_has_wilsons_interval(hits: int, of: int) -> None:
    found = proportion(hits, of)
    expected = binomtest(hits, of).proportion_ci(0.95, "wilson")
    assert found.value == hits / of
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_auc_is_scikit_learns_also_with_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(30) % 3 == 0)
    scores = np.round(rng.normal(size=30) + labels, 1)
    assert area_under_curve(scores, labels).value == pytest.approx(
        roc_auc_score(labels, scores), abs=1e-12
    )


@pytest.mark.parametrize(("value", "m", "n"), [(0.5, 5, 5), (0.8, 8, 12), (0.96, 20, 20)])
def test_each_limit_is_as_far_from_the_auc_as_its_own_standard_error_allows(
    value: float, m: int, n: int
) -> None:
    for limit in auc_limits(value, m, n):
        # Hanley and McNeil (1982), both sample sizes replaced by their mean (Newcombe 2006).
        first, second = limit / (2 - limit), 2 * limit**2 / (1 + limit)
        size = (m + n) / 2
        others = (size - 1) * (first - limit**2) + (size - 1) * (second - limit**2)
        error = math.sqrt((limit * (1 - limit) + others) / (m * n))
        assert abs(value - limit) == pytest.approx(Z * error, rel=1e-6)


def test_a_perfect_auc_of_five_and_five_patients_is_not_certain() -> None:
    low, high = auc_limits(1.0, 5, 5)
    # By hand: 1 − .643 = .357, and z²·.643·(1 + 4·.357/1.357 + 4·.643/1.643)/25 = .357.
    assert (round(low, 3), high) == (0.643, 1.0)
    mirrored = auc_limits(0.0, 5, 5)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.parametrize("size", [5, 8, 20])
@pytest.mark.parametrize("area", [0.6, 0.75, 0.9])
def test_auc_intervals_cover_the_truth_with_few_patients(area: float, size: int) -> None:
    rng = np.random.default_rng(size)
    draws, shift = 4000, math.sqrt(2) * norm.ppf(area)  # two normal distributions so far apart
    positive = rng.normal(shift, 1, size=(draws, size, 1))
    negative = rng.normal(0, 1, size=(draws, 1, size))
    pairs = (positive > negative).sum(axis=(1, 2))
    limits = {count: auc_limits(count / size**2, size, size) for count in np.unique(pairs)}
    covered = np.mean([limits[count][0] <= area <= limits[count][1] for count in pairs])
    assert covered >= 0.93


@pytest.mark.parametrize("sizes", [(5, 5), (8, 24), (6, 10, 14)])
def test_intervals_of_balanced_accuracy_cover_the_truth(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    truth = [0.9, 0.7, 0.8][: len(sizes)]
    covered = 0
    for _ in range(2000):
        parts = [proportion(rng.binomial(n, p), n) for n, p in zip(sizes, truth, strict=True)]
        found = mean_of(parts)
        covered += found.low <= np.mean(truth) <= found.high
    assert covered / 2000 >= 0.93


def test_the_interval_of_one_proportions_mean_is_its_own() -> None:
    one = proportion(3, 9)
    mean = mean_of([one])
    assert (mean.value, mean.low, mean.high) == pytest.approx((one.value, one.low, one.high))
