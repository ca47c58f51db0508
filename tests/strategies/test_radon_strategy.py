"""The Radon point as a strategy: which models are grouped, and aggregation of real messages."""

import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, Error, Message, MetricRecord
from flwr.serverapp.exception import AggregationError, InconsistentMessageReplies
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.aggregators.geometric_median import GeometricMedian
from strategies.aggregators.radon import (
    RadonPoint,
    group_models,
    radon_generator,
    radon_number,
    radon_point,
)
from tests.strategies.hull import distance_to_hull
from tests.strategies.replies import assert_one_point_of_the_whole_model, reply, request

# Which models are grouped -------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.integers(3, 7), st.integers(1, 3), st.integers(0, 500), st.integers(0, 9))
def test_groups_use_models_fairly(number: int, wanted: int, extra: int, round_: int) -> None:
    present = number + extra % (number**wanted + 5)
    groups = group_models(present, number, wanted, radon_generator(b"seed", round_))

    assert len(groups.members) == number**groups.iterations
    used, times = np.unique(groups.members, return_counts=True)
    assert groups.left_out == present - len(used)
    assert groups.filled == np.sum(times - 1)
    assert times.max() <= 2
    assert groups.filled == 0 or groups.left_out == 0
    for group in groups.members.reshape(-1, number):
        assert len(set(group)) == number
    if groups.iterations < wanted:
        assert 2 * present < number ** (groups.iterations + 1)
    assert groups.iterations == 1 or 2 * present >= number**groups.iterations


def test_nobody_is_left_out_or_doubled_systematically() -> None:
    left_out, doubled = np.zeros(10), np.zeros(8)
    for server_round in range(400):
        generator = radon_generator(b"seed", server_round)
        left_out[np.setdiff1d(np.arange(10), group_models(10, 3, 2, generator).members)] += 1
        doubled += np.bincount(group_models(8, 3, 2, generator).members, minlength=8) - 1
    # 400 draws: 40 and 50 expected, standard deviations 6 and 6.6.
    assert 15 < left_out.min() <= left_out.max() < 65
    assert 24 < doubled.min() <= doubled.max() < 76


# The strategy -------------------------------------------------------------------------------------


def numbers(*values: float) -> list[Message]:
    """Replies with one-parameter models, whose Radon number is 3."""
    return [reply(node, {"w": np.array([value])}) for node, value in enumerate(values, start=1)]


def aggregate(
    strategy: RadonPoint, replies: list[Message], server_round: int = 1
) -> tuple[ArrayRecord, MetricRecord]:
    model, metrics = strategy.aggregate_train(server_round, replies)
    assert model is not None
    assert metrics is not None
    return model, metrics


def test_strategy_aggregates_to_the_iterated_radon_point(caplog: pytest.LogCaptureFixture) -> None:
    replies = numbers(1, 9, 5, 2, 3, 40, 8, 7, -6)
    model, metrics = aggregate(RadonPoint(iterations=2), replies)
    assert model["w"].numpy().tolist() == [5.0]
    assert metrics == {
        "loss": 5.0,
        "radon-iterations": 2,
        "radon-filled": 0,
        "radon-left-out": 0,
    }
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_metrics_are_weighted_by_examples_but_models_are_not() -> None:
    replies = [reply(n, {"w": np.array([float(n)])}, examples=10**n) for n in (1, 2, 3)]
    model, metrics = aggregate(RadonPoint(), replies)
    assert model["w"].numpy().tolist() == [2.0]
    assert metrics["loss"] == pytest.approx((10 * 1 + 100 * 2 + 1000 * 3) / 1110)


def test_keys_shapes_and_types_are_kept_and_replies_left_alone() -> None:
    # Four numbers: their Radon number is 6.
    assert_one_point_of_the_whole_model(RadonPoint(), radon_point, models=6)


def test_one_wild_hospital_cannot_move_the_aggregate_out_of_the_others_hull() -> None:
    honest = np.random.default_rng(8).standard_normal((5, 4))
    models = [*honest, np.full(4, 1e9)]
    model, _ = aggregate(RadonPoint(), [reply(n, {"w": m}) for n, m in enumerate(models)])
    assert distance_to_hull(honest, model["w"].numpy(), 1.0) <= 1e-6


@pytest.mark.parametrize(
    ("present", "iterations", "filled", "left_out"),
    [(10, 2, 0, 1), (8, 2, 1, 0), (5, 2, 4, 0), (4, 1, 0, 1), (3, 1, 0, 0)],
)
def test_missing_hospitals_fill_groups_then_lower_the_iterations_and_are_reported(
    present: int,
    iterations: int,
    filled: int,
    left_out: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = [float(value) for value in range(present)]
    with caplog.at_level(logging.WARNING):
        model, metrics = aggregate(RadonPoint(iterations=2, seed=b"s"), numbers(*values))
    assert metrics["radon-iterations"] == iterations
    assert metrics["radon-filled"] == filled
    assert metrics["radon-left-out"] == left_out
    assert (
        f"{present} models for radon instead of 9: {iterations} of 2 iterations, "
        f"{filled} models counted twice, {left_out} left out"
    ) in caplog.text
    # With one extreme model in each triple, a median of triples is never the smallest or largest.
    assert 0 < model["w"].numpy()[0] < present - 1


def test_the_choice_follows_seed_and_round_and_repeats() -> None:
    def chosen(seed: bytes, server_round: int) -> float:
        replies = numbers(*(float(value) for value in range(30)))
        model, _ = aggregate(RadonPoint(seed=seed), replies, server_round)
        return float(model["w"].numpy()[0])

    first = [chosen(b"one", server_round) for server_round in range(12)]
    assert first == [chosen(b"one", server_round) for server_round in range(12)]
    assert len(set(first)) > 5
    assert first != [chosen(b"two", server_round) for server_round in range(12)]


def test_fewer_models_than_the_radon_number_are_an_error_not_a_model() -> None:
    with pytest.raises(
        AggregationError, match=r"2 usable models .* round 7, at least 3 are needed"
    ):
        RadonPoint(iterations=2).aggregate_train(7, numbers(1, 2))
    with pytest.raises(AggregationError, match="no usable model arrived in server round 7"):
        RadonPoint().aggregate_train(7, [])


def test_fewer_models_than_the_operators_minimum_are_an_error() -> None:
    strategy = RadonPoint(iterations=2, minimum=6)
    aggregate(strategy, numbers(1, 2, 3, 4, 5, 6))
    with pytest.raises(AggregationError, match=r"5 usable models .* at least 6 are needed"):
        strategy.aggregate_train(1, numbers(1, 2, 3, 4, 5))


def test_failed_hospitals_count_as_missing() -> None:
    failure = Message(Error(code=2, reason="out of memory"), reply_to=request(9))
    model, _ = aggregate(RadonPoint(), [failure, *numbers(3, 1, 2)])
    assert model["w"].numpy().tolist() == [2.0]
    with pytest.raises(AggregationError, match="2 usable models"):
        RadonPoint().aggregate_train(1, [failure, *numbers(3, 1)])


def test_a_model_that_is_not_finite_is_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        model, metrics = aggregate(RadonPoint(), numbers(3, float("nan"), 1, 2))
    assert model["w"].numpy().tolist() == [2.0]
    assert metrics["loss"] == pytest.approx((1 + 3 + 4) / 3)
    assert "model of node 2 holds values that are not finite" in caplog.text


def test_models_of_different_shapes_are_refused() -> None:
    replies = [reply(n, {"w": np.zeros((2, 3))}) for n in range(8)]
    replies[5] = reply(5, {"w": np.zeros((3, 2))})
    with pytest.raises(InconsistentMessageReplies, match=r"'w' of node 5 has shape \(3, 2\)"):
        RadonPoint().aggregate_train(1, replies)


def test_too_large_a_model_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match="radon") as refusal:
        RadonPoint(iterations=1).check(parameters=4819, hospitals=10)
    assert str(refusal.value) == (
        "radon with 1 iteration needs at least 4821 hospitals for a model of 4819 trainable "
        "parameters (its Radon number is parameters + 2); there are 10: choose a smaller model "
        "or another aggregator"
    )
    with pytest.raises(ValueError, match=r"2 iterations needs at least 441 .* fewer iterations"):
        RadonPoint(iterations=2).check(parameters=19, hospitals=440)
    RadonPoint(iterations=2).check(parameters=19, hospitals=441)


def test_a_minimum_that_can_never_be_met_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match="minimum is 12 hospitals, there are 9"):
        RadonPoint(iterations=2, minimum=12).check(parameters=1, hospitals=9)


def test_less_than_one_iteration_is_refused() -> None:
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        RadonPoint(iterations=0)


def test_radon_number_of_the_papers_susy_model_is_21() -> None:
    assert radon_number(19) == 21


def test_a_table_of_models_gives_what_messages_give() -> None:
    points = np.random.default_rng(5).normal(size=(11, 1)).astype(np.float64)
    messages = numbers(*points[:, 0].tolist())
    for strategy in (RadonPoint(iterations=2, seed=b"s"), GeometricMedian()):
        by_messages, _ = strategy.aggregate_train(4, messages)
        assert by_messages is not None
        (array,) = by_messages.values()
        by_table = strategy.aggregate_points(4, points, np.ones(len(points)))
        assert array.numpy().ravel().tolist() == pytest.approx(by_table.tolist(), abs=1e-12)
