"""The geometric median against a general minimiser, hand cases and its promise on outliers."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.optimize import minimize

from strategies.aggregators.geometric_median import GeometricMedian, geometric_median
from tests.strategies.replies import assert_one_point_of_the_whole_model, reply

Points = NDArray[np.float64]


def total_distance(points: Points, place: Points, weights: Points | None = None) -> float:
    distances = np.linalg.norm(points - place, axis=1)
    return float(distances.sum() if weights is None else weights @ distances)


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 50])
@pytest.mark.parametrize("count", [3, 8, 31])
def test_median_is_where_a_general_minimiser_ends(dimension: int, count: int) -> None:
    generator = np.random.default_rng(100 * dimension + count)
    points = generator.standard_normal((count, dimension))
    weights = generator.uniform(0.5, 2.0, count)
    median = geometric_median(points, weights)
    other = minimize(
        lambda place: total_distance(points, place, weights),
        weights @ points / weights.sum(),
        method="Nelder-Mead" if dimension <= 2 else "BFGS",
        options={"xatol": 1e-9, "fatol": 1e-12} if dimension <= 2 else {"gtol": 1e-8},
    )
    assert total_distance(points, median, weights) <= other.fun * (1 + 1e-12)
    assert median == pytest.approx(other.x, abs=1e-5)


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(st.integers(1, 7), st.integers(1, 4)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.integers(-3, 3).map(float))
    ),
    st.sampled_from([1.0, 1e-9, 1e9]),
)
def test_no_point_is_better_than_the_median_on_grids_with_duplicates(
    points: Points, unit: float
) -> None:
    points = unit * points
    median = geometric_median(points)
    best = total_distance(points, median)
    room = 1e-5 * best
    assert all(best <= total_distance(points, point) + room for point in points)
    for step in unit * 1e-3 * np.vstack([np.eye(points.shape[1]), -np.eye(points.shape[1])]):
        assert best <= total_distance(points, median + step) + room


def test_median_on_a_line_is_the_weighted_median() -> None:
    numbers = np.array([[7.0], [1.0], [3.0], [100.0], [4.0]])
    assert geometric_median(numbers).tolist() == [4.0]
    # Of the weight 10, the numbers up to 3 hold 6.
    assert geometric_median(numbers, [1.0, 2.0, 4.0, 2.0, 1.0]).tolist() == [3.0]
    direction = np.array([[1.0, -2.0, 0.5]])
    assert geometric_median(numbers @ direction) == pytest.approx(4.0 * direction[0], abs=1e-12)


def test_median_of_a_triangle_with_an_angle_over_120_degrees_is_that_corner() -> None:
    corner = [0.1, 0.2]
    assert geometric_median([[-5.0, 1.0], corner, [5.0, 1.0]]).tolist() == corner


def test_median_of_an_equilateral_triangle_sees_its_sides_under_120_degrees() -> None:
    triangle = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, np.sqrt(3.0)]])
    assert geometric_median(triangle) == pytest.approx([1.0, np.sqrt(1 / 3)], abs=1e-8)


def test_median_of_a_convex_quadrangle_is_where_its_diagonals_cross() -> None:
    quadrangle = [[0.0, 0.0], [10.0, 0.0], [9.0, 9.0], [0.0, 2.0]]
    # y = x meets y = 2 − x/5 at x = 5/3.
    assert geometric_median(quadrangle) == pytest.approx([5 / 3, 5 / 3], abs=1e-7)


def test_two_models_meet_in_the_middle() -> None:
    assert geometric_median([[0.0, 2.0], [4.0, 0.0]]).tolist() == [2.0, 1.0]


def test_equal_points_are_returned_as_they_are() -> None:
    point = [0.1, -1e6, 1 / 3]
    assert geometric_median([point] * 4).tolist() == point
    assert geometric_median([point]).tolist() == point


def test_an_iterate_on_a_point_that_is_not_the_median_moves_on() -> None:
    # The coordinate-wise median, where the iteration starts, is the point (0, 0); the other four
    # pull at it with 2·5/√25.01 − 2·0.1/√25.01 = 1.96, more than its own weight.
    points = np.array([[5.0, 0.1], [5.0, -0.1], [-0.1, 5.0], [-0.1, -5.0], [0.0, 0.0]])
    assert np.median(points, axis=0).tolist() == [0.0, 0.0]
    median = geometric_median(points)
    other = minimize(lambda place: total_distance(points, place), [1.0, 0.5], method="Nelder-Mead")
    assert median[0] > 0.1
    assert median == pytest.approx(other.x, abs=1e-3)


def test_a_step_away_from_a_heavy_point_shortens_the_sum() -> None:
    # As above, but the start weighs almost as much as the others pull: a whole step is too long.
    points = np.array([[5.0, 0.1], [5.0, -0.1], [-0.1, 5.0], [-0.1, -5.0], [0.0, 0.0]])
    weights = np.array([1.0, 1.0, 1.0, 1.0, 1.9])
    one_step = geometric_median(points, weights, max_iterations=1)
    assert one_step[0] > 0
    assert total_distance(points, one_step, weights) < total_distance(points, points[4], weights)


def test_less_than_half_of_the_points_cannot_carry_the_median_away() -> None:
    generator = np.random.default_rng(0)
    honest = generator.standard_normal((11, 5))
    radius = np.linalg.norm(honest, axis=1).max()
    for far in (1e2, 1e6, 1e12):
        wild = generator.standard_normal((9, 5)) + far
        median = geometric_median(np.vstack([wild, honest]))
        # Lopuhaä and Rousseeuw 1991: at most 2(n−k)/(n−2k) times the honest radius; n=20, k=9.
        assert np.linalg.norm(median) <= 2 * 11 / 2 * radius
    one_wild = np.vstack([honest, np.full((1, 5), 1e12)])
    assert np.linalg.norm(geometric_median(one_wild) - geometric_median(honest)) < 0.5


def test_a_weight_is_a_repetition() -> None:
    points = np.random.default_rng(1).standard_normal((6, 4))
    counts = [3, 1, 2, 0, 1, 2]
    weighted = geometric_median(points, [float(count) for count in counts])
    assert weighted == pytest.approx(geometric_median(np.repeat(points, counts, axis=0)), abs=1e-7)


def test_shifted_and_scaled_points_give_the_shifted_and_scaled_median() -> None:
    points = np.random.default_rng(2).standard_normal((9, 4))
    median = geometric_median(points)
    assert geometric_median(points + 1e6) - 1e6 == pytest.approx(median, abs=1e-7)
    assert geometric_median(1e-200 * points) * 1e200 == pytest.approx(median, abs=1e-7)
    assert geometric_median(1e200 * points) / 1e200 == pytest.approx(median, abs=1e-7)


def test_a_tighter_tolerance_is_met() -> None:
    points = np.random.default_rng(3).standard_normal((30, 3))
    for tolerance in (1e-3, 1e-6, 1e-12):
        away = points - geometric_median(points, tolerance=tolerance)
        gradient = np.linalg.norm((away / np.linalg.norm(away, axis=1, keepdims=True)).sum(axis=0))
        assert gradient <= 1.01 * tolerance * len(points)


@pytest.mark.parametrize(
    ("points", "weights", "message"),
    [
        (np.zeros(3), None, r"one row for each point .* shape \(3,\)"),
        (np.zeros((0, 3)), None, r"at least one row, got shape \(0, 3\)"),
        (np.zeros((2, 3)), [1.0], "2 points need as many weights"),
        (np.zeros((2, 3)), [1.0, -1.0], "none negative"),
        (np.zeros((2, 3)), [0.0, 0.0], "at least one positive"),
        (np.zeros((2, 3)), [1.0, np.nan], "must be finite"),
    ],
)
def test_unusable_input_is_refused(points: Points, weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        geometric_median(points, weights)


# The strategy -------------------------------------------------------------------------------------


def test_strategy_weighs_models_by_their_examples() -> None:
    replies = [
        reply(node, {"w": np.array([value])}, examples)
        for node, (value, examples) in enumerate(
            [(7.0, 1), (1.0, 2), (3.0, 4), (100.0, 2), (4.0, 1)]
        )
    ]
    model, metrics = GeometricMedian().aggregate_train(1, replies)
    assert model is not None
    assert model["w"].numpy().tolist() == [3.0]
    assert metrics == {"loss": pytest.approx((0 * 1 + 1 * 2 + 2 * 4 + 3 * 2 + 4 * 1) / 10)}


def test_strategy_takes_the_weight_from_the_key_it_was_given() -> None:
    strategy = GeometricMedian(weighted_by_key="loss")
    replies = [reply(node, {"w": np.array([float(node)])}) for node in (1, 2, 4)]
    model, _ = strategy.aggregate_train(1, replies)
    assert model is not None
    assert model["w"].numpy().tolist() == [4.0]  # it holds 4 of 7


def test_strategy_takes_one_median_of_the_whole_model_and_keeps_its_form() -> None:
    assert_one_point_of_the_whole_model(GeometricMedian(), geometric_median, models=7)


def test_strategy_leaves_out_models_that_are_not_finite(caplog: pytest.LogCaptureFixture) -> None:
    values = [3.0, float("inf"), 1.0, 2.0]
    replies = [reply(node, {"w": np.array([value])}) for node, value in enumerate(values)]
    with caplog.at_level(logging.WARNING):
        model, metrics = GeometricMedian().aggregate_train(1, replies)
    assert model is not None
    assert model["w"].numpy().tolist() == [2.0]
    assert metrics == {"loss": pytest.approx((0 + 2 + 3) / 3)}
    assert "model of node 1 holds values that are not finite" in caplog.text


def test_strategy_without_usable_models_gives_no_model() -> None:
    assert GeometricMedian().aggregate_train(1, []) == (None, None)
    lost = [reply(1, {"w": np.array([np.nan])})]
    assert GeometricMedian().aggregate_train(1, lost) == (None, None)
