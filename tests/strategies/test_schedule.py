"""Legs are what Algorithm 1's conditions on the round say, compared round by round."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.schedule import Ending, Leg, Schedule

PATIENT = settings(deadline=None)  # the machine may be busy

periods = st.none() | st.integers(1, 15)
SECRET = b"coordinator"


def endings(schedule: Schedule) -> list[str]:
    """Return for every round how it ends: 'h'and-over, 'a'ggregation or '.' (no communication)."""
    signs = ["."] * schedule.rounds
    for leg in schedule.legs:
        signs[leg.last_round] = "a" if leg.ending is Ending.AGGREGATION else "h"
    return signs


def printed_conditions(rounds: int, d: int | None, b: int | None) -> list[str]:
    """Read Algorithm 1 round by round, with aggregation before daisy-chaining."""
    signs = []
    for t in range(rounds):
        if (b is not None and t % b == b - 1) or t == rounds - 1:
            signs.append("a")
        elif d is not None and t % d == d - 1:
            signs.append("h")
        else:
            signs.append(".")
    return signs


@PATIENT
@given(rounds=st.integers(1, 80), d=periods, b=periods)
def test_a_round_ends_as_the_papers_conditions_say(
    rounds: int, d: int | None, b: int | None
) -> None:
    assert endings(Schedule(rounds, d, b)) == printed_conditions(rounds, d, b)


@PATIENT
@given(rounds=st.integers(1, 80), d=periods, b=periods)
def test_legs_tile_the_rounds_and_are_numbered_from_one(
    rounds: int, d: int | None, b: int | None
) -> None:
    legs = Schedule(rounds, d, b).legs
    trained = [t for leg in legs for t in range(leg.first_round, leg.last_round + 1)]
    assert trained == list(range(rounds))
    assert [leg.number for leg in legs] == list(range(1, len(legs) + 1))
    assert all(leg.local_rounds >= 1 for leg in legs)
    assert legs[-1].ending is Ending.AGGREGATION


def test_nine_hand_overs_then_an_aggregation_for_the_papers_periods() -> None:
    assert "".join(endings(Schedule(25, 1, 10))) == "hhhhhhhhhahhhhhhhhhahhhha"


def test_daisy_period_none_is_federated_averaging() -> None:
    assert Schedule(10, None, 4).legs == (
        Leg(1, 0, 4, Ending.AGGREGATION),
        Leg(2, 4, 4, Ending.AGGREGATION),
        Leg(3, 8, 2, Ending.AGGREGATION),
    )


def test_aggregation_period_none_aggregates_once_at_the_end() -> None:
    assert "".join(endings(Schedule(7, 2, None))) == ".h.h.ha"


def test_both_periods_none_is_one_leg_of_local_training() -> None:
    assert Schedule(9, None, None).legs == (Leg(1, 0, 9, Ending.AGGREGATION),)


@pytest.mark.parametrize(("d", "b"), [(1, 10), (2, 5), (3, 4)])
def test_random_schedule_aggregates_with_probability_d_over_b(d: int, b: int) -> None:
    legs = Schedule(6000 * d, d, b, secret=SECRET).legs[:-1]
    assert {leg.local_rounds for leg in legs} == {d}  # models travel every d rounds
    share = sum(leg.ending is Ending.AGGREGATION for leg in legs) / len(legs)
    deviation = (d / b * (1 - d / b) / len(legs)) ** 0.5
    assert abs(share - d / b) < 5 * deviation


def test_random_aggregations_do_not_depend_on_one_another() -> None:
    legs = Schedule(8000, 1, 2, secret=SECRET).legs[:-1]
    ended = [leg.ending is Ending.AGGREGATION for leg in legs]
    both = sum(earlier and later for earlier, later in pairwise(ended)) / len(ended)
    assert abs(both - 1 / 4) < 0.03


def test_random_schedule_with_equal_periods_aggregates_always() -> None:
    legs = Schedule(30, 3, 3, secret=SECRET).legs
    assert {leg.ending for leg in legs} == {Ending.AGGREGATION}
    assert len(legs) == 10


def test_random_schedule_follows_from_its_secret_alone() -> None:
    one = Schedule(200, 1, 5, secret=SECRET)
    assert Schedule(200, 1, 5, secret=SECRET).legs == one.legs
    assert Schedule(200, 1, 5, secret=b"another").legs != one.legs
    # A longer experiment goes the same way, but for the end of the shorter one.
    assert endings(Schedule(400, 1, 5, secret=SECRET))[:199] == endings(one)[:199]


def test_secret_is_not_shown() -> None:
    assert "coordinator" not in repr(Schedule(200, 1, 5, secret=SECRET))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"daisy_period": 0}, "daisy_period must be at least 1, got 0"),
        ({"aggregation_period": -3}, "aggregation_period must be at least 1, got -3"),
        ({"secret": SECRET, "daisy_period": 6}, "daisy_period ≤ aggregation_period, got 6 and 5"),
        ({"secret": SECRET, "daisy_period": None}, "random schedule needs daisy_period"),
        ({"secret": SECRET, "aggregation_period": None}, "random schedule needs daisy_period"),
    ],
)
def test_impossible_schedules_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**{"rounds": 20, "daisy_period": 1, "aggregation_period": 5} | arguments)
