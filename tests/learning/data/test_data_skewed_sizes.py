"""Sizes follow the paper's distribution and use up exactly all data."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.data.partition.skewed_sizes import skewed_sizes


def test_sizes_of_the_papers_mri_experiment_are_those_worked_out_by_hand() -> None:
    # n = 200, m = 25, c = 0.3, n_min = 2: ⌊7.5⌋ = 7 doctors' offices; the other 18 have
    # 2 + 300/306·i for i = 0 … 17, that is 2, 2.98, 3.96, … 18.67. The 14 examples lost by
    # cutting off go to the largest fractions, i = 1 … 14.
    sizes = skewed_sizes(25, 8, small_fraction=0.3, min_examples=2)
    assert sizes == [2] * 7 + list(range(2, 17)) + [16, 17, 18]
    assert sum(sizes) == 200


@given(st.integers(1, 200), st.integers(0, 60), st.integers(0, 99), st.integers(1, 20))
def test_sizes_add_up_and_follow_the_formula(
    hospitals: int, above: int, percent: int, smallest: int
) -> None:
    mean = smallest + above
    sizes = skewed_sizes(hospitals, mean, small_fraction=percent / 100, min_examples=smallest)
    small = percent * hospitals // 100
    growing = hospitals - small
    assert len(sizes) == hospitals
    assert sum(sizes) == hospitals * mean
    assert sizes == sorted(sizes)
    assert sizes[:small] == [smallest] * small
    if growing > 1:
        slope = 2 * (hospitals * mean - hospitals * smallest) / (growing * (growing - 1))
        for i, size in enumerate(sizes[small:]):
            assert abs(size - (smallest + slope * i)) < 1 + 1e-9


def test_the_share_is_the_decimal_the_user_wrote() -> None:
    # 0.29 · 100 is 28.999999999999996.
    sizes = skewed_sizes(100, 50, small_fraction=0.29, min_examples=1)
    assert sizes[28] == 1
    assert sizes[29] == 1  # the first of the growing ones starts from the minimum too
    assert sizes[30] == 3  # 1 + 2·4900/(71·70) = 2.97


def test_a_single_large_hospital_holds_the_rest() -> None:
    assert skewed_sizes(4, 10, small_fraction=0.75, min_examples=2) == [2, 2, 2, 34]


@pytest.mark.parametrize(
    ("fraction", "smallest", "words"),
    [
        (1.0, 2, "skew-small-fraction must be at least 0 and below 1, got 1.0"),
        (-0.5, 2, "skew-small-fraction must be at least 0 and below 1, got -0.5"),
        (0.3, 9, "skew-min-examples must be at most examples, 8"),
    ],
)
def test_impossible_sizes_are_refused(
    fraction: float, smallest: int, words: str, refusal: Callable[[Callable[[], object]], str]
) -> None:
    message = refusal(lambda: skewed_sizes(10, 8, small_fraction=fraction, min_examples=smallest))
    assert words in message
