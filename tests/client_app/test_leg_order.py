"""The hospital serves the legs of the agreed schedule, with their rounds and endings, and no other.

What a leg can't carry is here, too: a coordinator must not bring in models of its own making.
"""

from typing import Any

import pytest

from client_app.hospital.hospital import Hospital
from protocol.messages import Carries, Refusal
from tests.client_app.small_hospital import (
    EVERY_SECOND_LEG_AGGREGATES,
    Code,
    changed,
    hospital,
    leg,
    model,
    plain,
    remembered,
    trained,
)

# By hand from Algorithm 1: the first round of each leg, its number of rounds and its ending.
SCHEDULES: dict[str, tuple[dict[str, Any], list[tuple[int, int, str]]]] = {
    "hand-overs and aggregations": (
        {"rounds": 10, "daisy_period": 2, "aggregation_period": 4},
        [(0, 2, "H"), (2, 2, "A"), (4, 2, "H"), (6, 2, "A"), (8, 2, "A")],
    ),
    "periods that are no multiples": (
        {"rounds": 7, "daisy_period": 2, "aggregation_period": 3},
        [(0, 2, "H"), (2, 1, "A"), (3, 1, "H"), (4, 2, "A"), (6, 1, "A")],
    ),
    "aggregations only": (
        {"rounds": 7, "daisy_period": None, "aggregation_period": 3},
        [(0, 3, "A"), (3, 3, "A"), (6, 1, "A")],
    ),
    "hand-overs only": (
        {"rounds": 5, "daisy_period": 2, "aggregation_period": None},
        [(0, 2, "H"), (2, 2, "H"), (4, 1, "A")],
    ),
}
ENDINGS: dict[str, str | None] = {"H": "east", "A": None}


@pytest.mark.parametrize(("schedule", "legs"), SCHEDULES.values(), ids=SCHEDULES)
def test_it_serves_exactly_the_legs_of_the_schedule(
    schedule: dict[str, Any], legs: list[tuple[int, int, str]]
) -> None:
    memory: dict[str, bytes] = {}
    here = hospital(memory, schedule=schedule)

    for number, (first, count, ending) in enumerate(legs, start=1):
        other = "A" if ending == "H" else "H"
        before = dict(memory)
        for wrong in (
            {"recipient": ENDINGS[other]},
            {"local_rounds": count + 1},
            {"local_rounds": count - 1},
            {"first_round": first + 1},
            {"first_round": first + 1, "local_rounds": count - 1},
            {"first_round": first - 1, "local_rounds": count + 1} if first else {"leg": 100},
        ):
            asked = as_planned(number, first, count, ending) | wrong
            reply = here.answer(leg(model(), **asked))
            assert plain(reply) == Refusal(code=Code.AGAINST_SCHEDULE)
        assert remembered(memory) == remembered(before)
        assert trained(here.answer(leg(model(), **as_planned(number, first, count, ending))))
    after = as_planned(len(legs) + 1, schedule["rounds"], 1, "A")
    assert plain(here.answer(leg(model(), **after))) == Refusal(code=Code.AGAINST_SCHEDULE)


def as_planned(number: int, first: int, count: int, ending: str) -> dict[str, Any]:
    return {
        "leg": number,
        "first_round": first,
        "local_rounds": count,
        "recipient": ENDINGS[ending],
        "carries": Carries.ENVELOPE,
    }


# --- catching up ----------------------------------------------------------------------------------


def test_a_hospital_that_was_not_drawn_makes_up_its_rounds() -> None:
    drawn, undrawn = (hospital(schedule={"fraction": 0.5}) for _ in range(2))
    for here in (drawn, undrawn):
        start = trained(here.answer(leg(model()))).payload
    own = {"carries": Carries.ENVELOPE}
    between = trained(drawn.answer(leg(start, leg=2, **own))).payload

    late = undrawn.answer(leg(start, leg=3, first_round=2, local_rounds=4, **own))

    # Two legs of two rounds are one of four.
    assert trained(late).payload == trained(drawn.answer(leg(between, leg=3, **own))).payload


def test_a_hospital_that_is_drawn_late_for_the_first_time_makes_up_all_rounds() -> None:
    here = hospital(schedule={"fraction": 0.5})

    assert trained(here.answer(leg(model(), leg=4, first_round=0, local_rounds=8)))


@pytest.mark.parametrize(("first", "count"), [(1, 5), (0, 6), (2, 3), (2, 5), (5, 1), (6, 0)])
def test_no_round_is_trained_twice_to_catch_up(first: int, count: int) -> None:
    memory: dict[str, bytes] = {}
    here = hospital(memory, schedule={"fraction": 0.5})
    assert trained(here.answer(leg(model())))  # rounds 0 and 1
    before = dict(memory)
    asked = {"leg": 3, "carries": Carries.ENVELOPE}

    reply = here.answer(leg(model(), **asked, first_round=first, local_rounds=count))

    assert plain(reply) == Refusal(code=Code.AGAINST_SCHEDULE)
    assert remembered(memory) == remembered(before)
    assert trained(here.answer(leg(model(), **asked, first_round=2, local_rounds=4)))


# --- what a leg may carry -------------------------------------------------------------------------

OTHER = changed("output.bias", lambda array: array + 1.0)  # a model of the coordinator's making


def test_an_aggregate_is_accepted_once_after_each_aggregation_and_never_else() -> None:
    here = hospital(schedule=EVERY_SECOND_LEG_AGGREGATES)

    served = [assert_served_or_against_schedule(here, number) for number in range(1, 9)]

    # Leg 1 would be accepted with the agreed first model. Even legs end in an aggregation.
    assert served == [False, False, True, False, True, False, True, False]


def assert_served_or_against_schedule(here: Hospital, number: int) -> bool:
    """Try an aggregate; where it is refused, go on with an envelope."""
    recipient = "east" if number % 2 else None
    reply = plain(here.answer(leg(OTHER, leg=number, recipient=recipient)))
    if not isinstance(reply, Refusal):
        return True
    assert reply.code is (Code.MODEL_MISMATCH if number == 1 else Code.AGAINST_SCHEDULE)
    handed = leg(OTHER, leg=number, recipient=recipient, carries=Carries.ENVELOPE)
    assert trained(here.answer(handed))
    return False


@pytest.mark.parametrize(("served", "number"), [((), 3), ((1,), 3), ((1,), 5), ((1, 3), 5)])
def test_a_hospital_that_missed_an_aggregation_continues_from_its_result(
    served: tuple[int, ...], number: int
) -> None:
    here = hospital(schedule=EVERY_SECOND_LEG_AGGREGATES)
    for earlier in served:
        assert trained(here.answer(leg(model(), leg=earlier, carries=Carries.ENVELOPE)))

    assert trained(here.answer(leg(OTHER, leg=number)))


def test_only_the_first_leg_can_begin_without_a_model() -> None:
    here = hospital(schedule={"init": "own"})
    nothing = {"carries": Carries.NOTHING}
    assert trained(here.answer(leg(**nothing)))

    reply = here.answer(leg(leg=2, **nothing))

    assert plain(reply) == Refusal(code=Code.AGAINST_SCHEDULE)
    assert trained(here.answer(leg(model(), leg=2, carries=Carries.ENVELOPE)))
