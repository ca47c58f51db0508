"""Radon points against linear programs and exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from strategies.aggregators.radon import iterated_radon_point, radon_coefficients, radon_point
from tests.strategies.hull import Points, distance_to_hull

DIMENSIONS = [1, 2, 3, 5, 8, 13, 20]


# The Radon point ----------------------------------------------------------------------------------


def assert_in_both_hulls(points: Points) -> None:
    """By linear programs that know of the implementation only which points are in which part."""
    point, coefficients = radon_point(points), radon_coefficients(points)
    first, second = points[coefficients >= 0], points[coefficients < 0]
    assert len(first) > 0
    assert len(second) > 0
    # The point itself can only be as exact as a number of its size is written.
    spread = np.ptp(points, axis=0).max()
    written = np.spacing(np.abs(points).max()) / spread if spread > 0 else 0.0
    for part in (first, second):
        assert distance_to_hull(part, point, spread or 1.0) <= 1e-9 + 2 * written


def test_the_hull_check_itself_finds_points_outside() -> None:
    triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert distance_to_hull(triangle, np.array([0.25, 0.25]), 1.0) <= 1e-12
    assert distance_to_hull(triangle, np.array([0.5, 0.75]), 1.0) == pytest.approx(0.125)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_radon_point_is_in_both_hulls(dimension: int) -> None:
    generator = np.random.default_rng(dimension)
    points = generator.standard_normal((dimension + 2, dimension))
    few = max(1, dimension // 2)
    for case in (
        points,
        points + 1e6,
        1.0 + 1e-9 * points,
        1e-200 * points,
        points * 10.0 ** generator.integers(-12, 12, dimension),
        np.vstack([points[:-1], points[0] * (1 + 1e-15)]),
        generator.standard_normal((dimension + 2, few))
        @ generator.standard_normal((few, dimension)),
        np.full_like(points, 0.1),
    ):
        assert_in_both_hulls(case)


def shaped(dimension: int, elements: st.SearchStrategy[float]) -> st.SearchStrategy[Points]:
    return arrays(np.float64, (dimension + 2, dimension), elements=elements)


few_values = st.integers(-2, 2).map(float)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6).flatmap(lambda d: shaped(d, few_values)), st.sampled_from([0.0, 1.0, 1e6]))
def test_points_on_a_small_grid_with_duplicates_are_handled(grid: Points, offset: float) -> None:
    assert_in_both_hulls(grid + offset)
    assert_in_both_hulls(1e-7 * grid + offset)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6).flatmap(lambda d: shaped(d, st.floats(-1e3, 1e3, width=32))), st.data())
def test_collinear_points_are_handled(points: Points, data: st.DataObject) -> None:
    places = data.draw(arrays(np.float64, len(points), elements=st.floats(-10, 10, width=16)))
    assert_in_both_hulls(points[0] + places[:, None] * points[1])


def exact_radon_point(points: Points) -> list[Fraction]:
    """The Radon point by Gaussian elimination in rational numbers; points in general position."""
    size, dimension = points.shape
    rows = [[Fraction(float(value)) for value in column] for column in points.T]
    rows.append([Fraction(1)] * size)
    for step in range(dimension + 1):
        pivot = next(row for row in range(step, dimension + 1) if rows[row][step] != 0)
        rows[step], rows[pivot] = rows[pivot], rows[step]
        rows[step] = [value / rows[step][step] for value in rows[step]]
        for row in range(dimension + 1):
            if row != step:
                factor = rows[row][step]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[step], strict=True)]
    lam = [-row[-1] for row in rows] + [Fraction(1)]
    total = sum(value for value in lam if value > 0)
    return [
        sum(
            (value * Fraction(float(s)) for value, s in zip(lam, column, strict=True) if value > 0),
            start=Fraction(0),
        )
        / total
        for column in points.T
    ]


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_radon_point_agrees_with_exact_arithmetic(dimension: int, offset: float) -> None:
    generator = np.random.default_rng(100 + dimension)
    # A million times coarser than float64, so that adding the offset is exact.
    points = np.round(generator.standard_normal((dimension + 2, dimension)) * 2**12) / 2**12
    points += offset
    error = max(
        abs(Fraction(float(got)) - exact)
        for got, exact in zip(radon_point(points), exact_radon_point(points), strict=True)
    )
    assert error <= 1e-12 + np.spacing(offset)


def test_radon_point_in_one_dimension_is_exactly_the_median() -> None:
    generator = np.random.default_rng(0)
    triples = generator.standard_normal((200, 3, 1))
    assert np.array_equal(radon_point(triples), np.median(triples, axis=1))


def test_radon_point_of_a_square_is_where_its_diagonals_cross() -> None:
    square = [[0.0, 0.0], [4.0, 0.0], [4.0, 2.0], [0.0, 2.0]]
    assert radon_point(square) == pytest.approx([2.0, 1.0], abs=1e-15)


def test_radon_point_of_a_triangle_around_a_point_is_that_point() -> None:
    inner = [0.1, 0.3]
    assert radon_point([[0.0, 0.0], [1.0, 0.0], inner, [0.0, 1.0]]).tolist() == inner


def test_radon_point_of_duplicates_is_exactly_the_commonest_point() -> None:
    a, b, c = [0.1, 0.7, -0.2], [3.0, 1 / 3, 2.0], [5.0, 5.0, 5.0]
    assert radon_point([c, a, b, a, [1.0, 2.0, 3.0]]).tolist() == a
    assert radon_point([b, a, b, a, a]).tolist() == a
    assert radon_point([a, b, b, a, c]).tolist() == a
    assert radon_point([[0.0, 0.3], [-0.0, 0.3], [2.0, 5.0], [2.0, 5.0]]).tolist() == [0.0, 0.3]


def test_radon_point_moves_with_an_affine_map_and_ignores_the_order() -> None:
    generator = np.random.default_rng(4)
    points = generator.standard_normal((8, 6))
    matrix, shift = generator.standard_normal((6, 6)), generator.standard_normal(6)
    mapped = generator.permutation(points @ matrix + shift)
    assert radon_point(mapped) == pytest.approx(radon_point(points) @ matrix + shift, abs=1e-12)


def test_groups_in_one_call_give_what_each_gives_alone() -> None:
    groups = np.random.default_rng(5).standard_normal((2, 3, 6, 4))
    groups[1, 2, 3] = groups[1, 2, 0]
    together = radon_point(groups)
    assert together.shape == (2, 3, 4)
    for place in np.ndindex(2, 3):
        assert together[place] == pytest.approx(radon_point(groups[place]), abs=1e-14)


def test_a_wrong_number_of_points_is_refused_with_the_right_one() -> None:
    with pytest.raises(ValueError, match=r"exactly 4 of them, got 5: for more .* iterated_radon"):
        radon_point(np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"2 coordinates needs exactly 4 of them, got 3$"):
        radon_point(np.zeros((3, 2)))


# The iterated Radon point -------------------------------------------------------------------------


def test_nine_numbers_in_two_iterations_give_the_median_of_medians() -> None:
    nine = [[1.0], [9.0], [5.0], [2.0], [3.0], [40.0], [8.0], [7.0], [-6.0]]
    # The medians of neighbouring triples are 5, 3, 7; with 5 and −6 swapped they are 1, 3, 7.
    assert iterated_radon_point(nine, 2).tolist() == [5.0]
    nine[2], nine[8] = nine[8], nine[2]
    assert iterated_radon_point(nine, 2).tolist() == [3.0]


def test_iterating_is_taking_radon_points_of_radon_points() -> None:
    points = np.random.default_rng(6).standard_normal((64, 2))
    first = [radon_point(points[start : start + 4]) for start in range(0, 64, 4)]
    second = [radon_point(first[start : start + 4]) for start in range(0, 16, 4)]
    assert iterated_radon_point(points, 3) == pytest.approx(radon_point(second), abs=1e-12)


@pytest.mark.parametrize("count", [8, 10, 27])
def test_other_than_a_power_of_the_radon_number_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"exactly 3\*\*2 points .* shape \({count}, 1\)"):
        iterated_radon_point(np.zeros((count, 1)), 2)
