"""Groups chain over columns, and a test set never shares one with the training pool."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.data import DataOptions
from learning.data.partition.groups import set_apart, unite
from learning.data.partition.partition import assign_group
from learning.data.scale import standardise

Refusal = Callable[[Callable[[], object]], str]


@given(st.lists(st.tuples(st.sampled_from(" abcde"), st.sampled_from(" 12345")), min_size=1))
def test_united_rows_are_those_a_path_of_common_values_leads_to(
    drawn: list[tuple[str, str]],
) -> None:
    table = [(a.strip(), b.strip()) for a, b in drawn]
    count = len(table)
    linked = np.array(
        [
            [i == j or any(x == y != "" for x, y in zip(table[i], table[j], strict=True))
             for j in range(count)]
            for i in range(count)
        ]
    )  # fmt: skip
    reachable = np.linalg.matrix_power(linked.astype(float), count) > 0
    groups = unite([a for a, _ in table], [b for _, b in table])
    assert ((groups[:, np.newaxis] == groups) == reachable).all()


@given(
    st.lists(st.integers(0, 30), min_size=4, max_size=80), st.floats(0.2, 0.8), st.integers(0, 99)
)
def test_the_test_set_is_disjoint_by_group_and_not_larger_than_asked(
    numbers: list[int], fraction: float, seed: int
) -> None:
    groups = np.array([*numbers, *range(100, 110)], dtype=np.int64)
    pool, test = set_apart(len(groups), groups, fraction, seed)
    assert sorted([*pool, *test]) == list(range(len(groups)))
    assert not set(groups[pool]) & set(groups[test])
    largest = max(np.bincount(groups))
    assert 0 <= round(fraction * len(groups)) - len(test) < largest


@pytest.mark.parametrize(
    ("count", "fraction", "size"), [(253, 0.21, 53), (10, 0.25, 2), (10, 0, 0)]
)
def test_the_test_set_has_exactly_the_share_where_nothing_belongs_together(
    count: int, fraction: float, size: int
) -> None:
    pool, test = set_apart(count, None, fraction, 0)
    assert (len(pool), len(test)) == (count - size, size)


def test_a_share_that_leaves_nothing_is_refused(refusal: Refusal) -> None:
    assert "test-fraction 0.1 of 3 examples" in refusal(lambda: set_apart(3, None, 0.1, 0))
    assert "test-fraction 0.9 of 2 examples" in refusal(lambda: set_apart(2, None, 0.9, 0))
    one = np.zeros(10, dtype=np.int64)
    assert "every group has more" in refusal(lambda: set_apart(10, one, 0.2, 0))


def test_a_group_is_at_home_where_most_of_it_is() -> None:
    groups = np.array([5, 5, 5, 6, 6, 7], dtype=np.int64)
    homes = np.array([1, 0, 1, 2, 1, 0], dtype=np.int64)
    assert assign_group(np.arange(6), groups, homes).tolist() == [0, 2, 4, 5]
    assert assign_group(np.array([1, 3]), groups, homes).tolist() == [1, 3]


def test_standardising_uses_the_training_pool_only() -> None:
    columns = np.array([[1.0, 0.1], [3.0, 0.1], [100.0, 0.3]])
    scaled = standardise(columns, np.array([0, 1]))
    # Mean 2, deviation 1; the second column is constant in the pool.
    assert scaled.dtype == np.float32
    assert scaled[:, 0].tolist() == [-1, 1, 98]
    assert scaled[:, 1] == pytest.approx([0, 0, 0.2])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"test_fraction": 1.0}, "test-fraction must be at least 0 and below 1, got 1.0"),
        ({"test_fraction": -0.1}, "test-fraction must be at least 0 and below 1, got -0.1"),
        ({"image_size": 0}, "image-size must be at least 1 pixel, got 0"),
        ({"image_mode": "cmyk"}, "image-mode must be auto, grey or rgb, got 'cmyk'"),
        ({"classes": ("a", "b", "a")}, "classes must differ, got a, b, a"),
        ({"train_examples": 0}, "train-examples and test-examples must be at least 1"),
    ],
)
def test_impossible_options_are_refused_by_name(
    options: dict[str, object], words: str, refusal: Refusal
) -> None:
    assert words in refusal(lambda: DataOptions(**options))  # type: ignore[arg-type]
