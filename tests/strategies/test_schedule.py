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
@given(
    rounds=st.integers(1, 80),
    d=periods,
    b=st.integers(1, 15),
    ramp=st.booleans(),
    tail=st.floats(0, 0.99),
)
def test_legs_tile_the_rounds_and_are_numbered_from_one(
    rounds: int, d: int | None, b: int, ramp: bool, tail: float
) -> None:
    legs = Schedule(rounds, d, b, ramp=ramp, tail=tail).legs
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


# Gaps 1, 2, 4, 8, then 10: aggregations after 1, 3, 7, 15, 25, 35, 45 rounds.
RAMPS = {
    10: (50, [0, 2, 6, 14, 24, 34, 44, 49]),
    8: (40, [0, 2, 6, 14, 22, 30, 38, 39]),
    5: (20, [0, 2, 6, 11, 16, 19]),
    2: (6, [0, 2, 4, 5]),
    1: (4, [0, 1, 2, 3]),
}


@pytest.mark.parametrize("b", RAMPS)
def test_ramp_doubles_the_gap_until_the_period(b: int) -> None:
    rounds, aggregations = RAMPS[b]
    signs = endings(Schedule(rounds, 1, b, ramp=True))
    assert [t for t, sign in enumerate(signs) if sign == "a"] == aggregations
    assert set(signs) <= {"a", "h"}  # with d = 1 every other round is a hand-over


@PATIENT
@given(rounds=st.integers(1, 200), b=st.integers(1, 40))
def test_ramp_gaps_never_shrink_and_at_most_double(rounds: int, b: int) -> None:
    signs = endings(Schedule(rounds, None, b, ramp=True))
    ends = [-1, *(t for t, sign in enumerate(signs) if sign == "a")]
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    assert gaps[0] == 1
    for earlier, later in pairwise(gaps[:-1]):  # the last one is cut off by the end
        assert later == min(2 * earlier, b)


@pytest.mark.parametrize(
    ("d", "tail", "expected"),
    [
        (1, 0.0, "hhhhahhhhahhhhahhhha"),
        (1, 0.25, "hhhhahhhhahhhhaaaaaa"),  # the last 5 of 20 rounds
        (2, 0.5, ".h.hah.h.a.a.aaa.a.a"),
        (3, 0.99, "..a.aa..aa.a..a..a.a"),
    ],
)
def test_every_communication_in_the_tail_aggregates(d: int, tail: float, expected: str) -> None:
    assert "".join(endings(Schedule(20, d, 5, tail=tail))) == expected


@PATIENT
@given(rounds=st.integers(1, 80), d=periods, b=periods, tail=st.floats(0, 0.99))
def test_tail_adds_no_communication(rounds: int, d: int | None, b: int | None, tail: float) -> None:
    without = endings(Schedule(rounds, d, b))
    for t, sign in enumerate(endings(Schedule(rounds, d, b, tail=tail))):
        if t < rounds - round(tail * rounds):
            assert sign == without[t]
        else:
            assert sign == ("." if without[t] == "." else "a")


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
        ({"tail": 1.0}, "tail must be at least 0 and less than 1, got 1.0"),
        ({"tail": -0.1}, "tail must be at least 0"),
        ({"tail": float("nan")}, "tail must be at least 0"),
        ({"ramp": True, "aggregation_period": None}, "ramp needs an aggregation_period"),
        ({"secret": SECRET, "daisy_period": 6}, "daisy_period ≤ aggregation_period, got 6 and 5"),
        ({"secret": SECRET, "daisy_period": None}, "random schedule needs daisy_period"),
        ({"secret": SECRET, "aggregation_period": None}, "random schedule needs daisy_period"),
        ({"secret": SECRET, "ramp": True}, "can't be combined with ramp or tail"),
        ({"secret": SECRET, "tail": 0.1}, "can't be combined with ramp or tail"),
    ],
)
def test_impossible_schedules_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**{"rounds": 20, "daisy_period": 1, "aggregation_period": 5} | arguments)
