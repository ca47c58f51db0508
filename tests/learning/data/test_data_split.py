"""Partitions are of the promised size and kind, and nothing that belongs together is parted."""

from collections import Counter
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.data import DataError, Examples, Partition, SplitOptions, split

Refusal = Callable[[Callable[[], object]], str]


def pool(
    labels: list[int], groups: list[int] | None = None, hospitals: list[str] | None = None
) -> Examples:
    """Return examples whose only feature is their row, so that a test can tell them apart."""
    return Examples(
        np.arange(len(labels), dtype=np.float32)[:, np.newaxis],
        np.array(labels, dtype=np.int64),
        None if groups is None else np.array(groups, dtype=np.int64),
        None if hospitals is None else np.array(hospitals, dtype=np.str_),
    )


def rows(examples: Examples) -> list[int]:
    return [int(row) for row in examples.features[:, 0]]


def divide(examples: Examples, seed: int = 0, /, **how: Any) -> list[Partition]:
    return split(examples, SplitOptions(**how), np.random.default_rng(seed))


def assert_nothing_is_shared(examples: Examples, partitions: list[Partition]) -> None:
    parts = [part for partition in partitions for part in (partition.train, partition.held_out)]
    dealt = [row for part in parts for row in rows(part)]
    assert len(dealt) == len(set(dealt))
    for part in parts:
        assert part.labels.tolist() == examples.labels[rows(part)].tolist()
    if examples.groups is not None:
        owners = Counter(group for part in parts for group in set(part.groups.tolist()))  # type: ignore[union-attr]
        assert set(owners.values()) <= {1}


numbers = st.integers(0, 2**32)


@given(st.data())
def test_equal_shares_are_disjoint_and_of_the_size_asked_for(data: st.DataObject) -> None:
    hospitals, size = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 9))
    held_out, spare = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 5))
    examples = pool([0] * (hospitals * (size + held_out) + spare))
    partitions = divide(
        examples, data.draw(numbers), hospitals=hospitals, examples=size, held_out=held_out
    )
    assert [(len(s.train), len(s.held_out)) for s in partitions] == [(size, held_out)] * hospitals
    assert_nothing_is_shared(examples, partitions)


@given(
    st.lists(st.integers(1, 7), min_size=5, max_size=40),
    st.sampled_from(["equal", "skewed"]),
    numbers,
)
def test_groups_are_never_parted_and_sizes_are_still_exact(
    group_sizes: list[int], kind: str, seed: int
) -> None:
    groups = [group for group, size in enumerate(group_sizes) for _ in range(size)]
    examples = pool([0] * len(groups), groups)
    # Each group gives one example at least: so many can always be placed.
    hospitals = 2
    size = max(1, len(group_sizes) // hospitals - 1)
    partitions = divide(
        examples,
        seed,
        kind=kind,
        hospitals=hospitals,
        examples=size,
        held_out=1 if len(group_sizes) >= hospitals * (size + 1) else 0,
        skew_min_examples=1,
    )
    assert sum(len(partition.train) for partition in partitions) == hospitals * size
    if kind == "equal":
        assert {len(partition.train) for partition in partitions} == {size}
    assert_nothing_is_shared(examples, partitions)


@pytest.mark.parametrize("seed", range(20))
def test_groups_cost_no_examples_where_single_ones_can_fill_the_gaps(seed: int) -> None:
    # The MRI scans: 200 for 25 hospitals with 8 each, a third of them in groups of 2 to 5.
    groups = [
        group for group, size in enumerate([5, 4, 4, *[3] * 4, *[2] * 19]) for _ in range(size)
    ]
    groups += range(1000, 1000 + 200 - len(groups))
    partitions = divide(pool([0] * 200, groups), seed, hospitals=25, examples=8)
    assert sorted(row for partition in partitions for row in rows(partition.train)) == list(
        range(200)
    )


def test_a_patient_with_more_images_than_a_hospital_has_room_for_loses_the_surplus() -> None:
    groups = [row // 5 for row in range(20)]
    partitions = divide(pool([0] * 20, groups), hospitals=4, examples=3)
    assert [len(partition.train) for partition in partitions] == [3] * 4
    assert [len(set(partition.train.groups.tolist())) for partition in partitions] == [1] * 4  # type: ignore[union-attr]


def test_patients_with_many_images_are_not_preferred() -> None:
    groups = [0, 0, 0, 0, *range(1, 100)]
    chosen = 0
    for seed in range(300):
        partitions = divide(pool([0] * len(groups), groups), seed, hospitals=2, examples=5)
        chosen += any(0 in rows(partition.train) for partition in partitions)
    # About 10 of 100 patients are drawn; always taking the largest would give 300.
    assert chosen < 60


def test_every_example_is_as_likely_to_reach_every_hospital() -> None:
    for groups in (None, list(range(12))):
        reached = np.zeros((12, 3))
        for seed in range(600):
            partitions = divide(pool([0] * 12, groups), seed, hospitals=3, examples=2)
            for hospital, partition in enumerate(partitions):
                reached[rows(partition.train), hospital] += 1
        # 2 of 12 places, 600 times: 100 expected, standard deviation 9.
        assert reached.min() > 60
        assert reached.max() < 140


@given(st.data())
def test_pathological_shares_have_exactly_k_classes_and_equal_sizes(data: st.DataObject) -> None:
    number_of_classes = data.draw(st.integers(2, 6))
    k = data.draw(st.integers(1, number_of_classes))
    hospitals = data.draw(st.integers(1, 10))
    per_class, held = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 2))
    labels = list(range(number_of_classes)) * (hospitals * (per_class + held))
    partitions = divide(
        pool(labels),
        data.draw(numbers),
        kind="pathological",
        hospitals=hospitals,
        examples=k * per_class,
        held_out=k * held,
        classes_per_hospital=k,
    )
    for partition in partitions:
        train, held_out = Counter(partition.train.labels), Counter(partition.held_out.labels)
        assert sorted(train.values()) == [per_class] * k
        assert sorted(held_out.values()) == ([held] * k if held else [])
        assert not held or train.keys() == held_out.keys()
    assert_nothing_is_shared(pool(labels), partitions)


@given(
    st.lists(st.integers(0, 8), min_size=2, max_size=4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 3),
    numbers,
)
def test_pathological_split_fails_only_where_no_assignment_exists(
    counts: list[int], hospitals: int, k: int, lot: int, seed: int
) -> None:
    classes = [label for label, count in enumerate(counts) if count]
    possible = any(
        all(sum(c in own for own in owned) * lot <= counts[c] for c in classes)
        for owned in product(combinations(classes, k), repeat=hospitals)
    )
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    try:
        partitions = divide(
            pool(labels),
            seed,
            kind="pathological",
            hospitals=hospitals,
            examples=k * lot,
            classes_per_hospital=k,
        )
    except DataError:
        assert not possible
    else:
        assert [len(set(partition.train.labels)) for partition in partitions] == [k] * hospitals


def test_pathological_hospitals_have_a_class_as_often_as_it_is_frequent() -> None:
    labels = [0] * 260 + [1] * 740
    partitions = divide(
        pool(labels), kind="pathological", hospitals=100, examples=8, classes_per_hospital=1
    )
    assert sum(partition.train.labels[0] for partition in partitions) == 74
    # Nor does a hospital's number tell its class.
    assert {int(partition.train.labels[0]) for partition in partitions[:25]} == {0, 1}


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=12, max_size=12
    ),
    numbers,
)
def test_pathological_split_does_not_part_a_patient_with_several_classes(
    patients: list[tuple[int, int, int]], seed: int
) -> None:
    # Each patient has three images of one class and two of any.
    labels = [label for usual, *other in patients for label in (usual, usual, usual, *other)]
    examples = pool(labels, [row // 5 for row in range(60)])
    partitions = divide(
        examples,
        seed,
        kind="pathological",
        hospitals=2,
        examples=2,
        held_out=1,
        classes_per_hospital=1,
    )
    for partition in partitions:
        assert len({*partition.train.labels.tolist(), *partition.held_out.labels.tolist()}) == 1
    assert_nothing_is_shared(examples, partitions)


@given(st.integers(1, 30), st.integers(2, 9), st.integers(0, 3), numbers)
def test_skewed_shares_give_out_n_examples_and_the_same_number_held_out(
    hospitals: int, size: int, held_out: int, seed: int
) -> None:
    examples = pool([0] * hospitals * (size + held_out))
    partitions = divide(
        examples, seed, kind="skewed", hospitals=hospitals, examples=size, held_out=held_out
    )
    sizes = [len(partition.train) for partition in partitions]
    assert sum(sizes) == hospitals * size
    assert sizes == sorted(sizes)
    assert {len(partition.held_out) for partition in partitions} == {held_out}
    assert_nothing_is_shared(examples, partitions)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 25)), min_size=1, max_size=60),
    st.integers(0, 4),
    st.booleans(),
    numbers,
)
def test_natural_partitions_are_the_hospitals(
    drawn: list[tuple[str, int]], held_out: int, grouped: bool, seed: int
) -> None:
    # A patient of one hospital only: its number is made to differ between hospitals.
    hospitals = [hospital for hospital, _ in drawn]
    groups = [100 * ord(hospital) + group for hospital, group in drawn]
    examples = pool([0] * len(drawn), groups if grouped else None, hospitals)
    partitions = divide(examples, seed, kind="natural", held_out=held_out)
    assert [partition.name for partition in partitions] == sorted(set(hospitals))
    for partition in partitions:
        size = hospitals.count(partition.name)
        assert len(partition.held_out) == (held_out if size >= 2 * held_out else 0)
        for part in (partition.train, partition.held_out):
            assert part.hospitals is not None
            assert set(part.hospitals.tolist()) <= {partition.name}
        if not grouped:
            assert len(partition.train) + len(partition.held_out) == size
    assert_nothing_is_shared(examples, partitions)


def test_a_patient_of_two_hospitals_stays_where_most_of_the_images_are() -> None:
    examples = pool([0] * 6, [7, 7, 7, 1, 2, 3], ["b", "a", "b", "a", "b", "a"])
    a, b = divide(examples, kind="natural")
    assert rows(a.train) == [3, 5]
    assert rows(b.train) == [0, 2, 4]


@pytest.mark.parametrize("kind", ["equal", "pathological", "skewed", "natural"])
@pytest.mark.parametrize("grouped", [False, True])
def test_the_same_seed_gives_the_same_shares_and_another_one_others(
    kind: str, grouped: bool
) -> None:
    groups = [row // 2 for row in range(240)] if grouped else None
    examples = pool([row // 2 % 3 for row in range(240)], groups, ["a", "a", "b", "b"] * 60)

    def dealt(seed: int) -> list[tuple[str, list[int], list[int]]]:
        hospitals = 0 if kind == "natural" else 5
        partitions = divide(examples, seed, kind=kind, hospitals=hospitals, examples=8, held_out=4)
        return [
            (partition.name, rows(partition.train), rows(partition.held_out))
            for partition in partitions
        ]

    assert dealt(1) == dealt(1)
    assert dealt(1) != dealt(2)


@pytest.mark.parametrize(
    ("hospitals", "first", "last"),
    [
        (3, "hospital-01", "hospital-03"),
        (10, "hospital-01", "hospital-10"),
        (100, "hospital-001", "hospital-100"),
        (1000, "hospital-0001", "hospital-1000"),
    ],
)
def test_names_sort_in_the_order_of_the_shares(hospitals: int, first: str, last: str) -> None:
    names = [
        partition.name for partition in divide(pool([0] * 1000), hospitals=hospitals, examples=1)
    ]
    assert (names[0], names[-1]) == (first, last)
    assert names == sorted(names)


def test_too_few_examples_are_refused_with_the_numbers_and_what_to_lower(refusal: Refusal) -> None:
    message = refusal(lambda: divide(pool([0] * 99), hospitals=10, examples=8, held_out=2))
    assert message == (
        "the data set has 99 training examples, but the hospitals need 100: "
        "lower hospitals, examples or held-out"
    )


def test_too_few_examples_because_of_groups_are_refused_and_counted(refusal: Refusal) -> None:
    examples = pool([0] * 20, [row // 10 for row in range(20)])
    message = refusal(lambda: divide(examples, hospitals=3, examples=4))
    assert "has 20 training examples (8 without splitting groups)" in message
    assert "need 12" in message


def test_too_few_examples_of_the_classes_are_refused_with_the_numbers(refusal: Refusal) -> None:
    message = refusal(
        lambda: divide(pool([0] * 9 + [1] * 20), kind="pathological", hospitals=5, examples=10)
    )
    assert message == (
        "29 training examples make 5 lots of 5 of one class, but 5 hospitals with 2 classes each "
        "need 10: lower hospitals, examples or held-out"
    )


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"kind": "random"}, "split must be equal, pathological, skewed or natural, got 'random'"),
        ({"hospitals": 0, "examples": 8}, "hospitals must be at least 1, got 0"),
        ({"hospitals": 2, "examples": 0}, "examples must be at least 1, got 0"),
        ({"hospitals": 2, "examples": 2, "held_out": -1}, "held-out must be at least 0, got -1"),
        (
            {"kind": "pathological", "hospitals": 2, "examples": 3},
            "examples must be a multiple of classes-per-hospital, 2",
        ),
        (
            {"kind": "pathological", "hospitals": 2, "examples": 4, "held_out": 1},
            "held-out must be a multiple of classes-per-hospital, 2",
        ),
        (
            {"kind": "pathological", "hospitals": 2, "examples": 9, "classes_per_hospital": 9},
            "classes-per-hospital must be at most 3",
        ),
        (
            {"kind": "pathological", "hospitals": 2, "examples": 9, "classes_per_hospital": 0},
            "classes-per-hospital must be at least 1",
        ),
        (
            {"kind": "skewed", "hospitals": 2, "examples": 2, "skew_min_examples": 0},
            "skew-min-examples must be at least 1",
        ),
        ({"kind": "natural"}, "split natural needs each example's hospital"),
    ],
)
def test_impossible_options_are_refused_by_name(
    how: dict[str, Any], words: str, refusal: Refusal
) -> None:
    assert words in refusal(lambda: divide(pool([0, 1, 2] * 30), **how))


def test_natural_split_refuses_another_number_of_hospitals(refusal: Refusal) -> None:
    examples = pool([0] * 4, hospitals=["a", "a", "b", "b"])
    assert len(divide(examples, kind="natural", hospitals=2)) == 2
    message = refusal(lambda: divide(examples, kind="natural", hospitals=3))
    assert "set hospitals to 2 or 0, got 3" in message


@settings(max_examples=20)
@given(st.lists(st.integers(0, 19), max_size=30))
def test_take_keeps_rows_together(indices: list[int]) -> None:
    examples = pool(list(range(20)), list(range(20)), [str(row) for row in range(20)])
    taken = examples.take(indices)
    assert len(taken) == len(indices)
    assert taken.groups is not None
    assert taken.hospitals is not None
    assert rows(taken) == taken.labels.tolist() == taken.groups.tolist() == indices
    assert taken.hospitals.tolist() == [str(row) for row in indices]
