"""A random schedule: the hospital limits its aggregations, and checks it when it is opened."""

from typing import Any

import pytest

from client_app.hospital.hospital import Hospital
from protocol.messages import Carries, Closed, Refusal
from protocol.schedule import Ending, Schedule, schedule_commitment, schedule_seed
from tests.client_app.small_hospital import (
    ROUNDS,
    Code,
    close,
    hospital,
    leg,
    model,
    plain,
    remembered,
    trained,
)

SEED = schedule_seed(b"route" * 8)
# One leg in four is an aggregation, on average; each has two rounds.
SCHEDULE: dict[str, Any] = {
    "daisy_period": 2,
    "aggregation_period": 8,
    "schedule_commitment": schedule_commitment(SEED),
}
DRAWN = [
    leg.ending is Ending.AGGREGATION for leg in Schedule(ROUNDS, 2, 8, secret=SEED).legs
]  # of each leg


def ask(here: Hospital, number: int, *, aggregates: bool, **changes: Any) -> bytes:
    recipient = None if aggregates else "east"
    fields = {"leg": number, "recipient": recipient, "carries": Carries.ENVELOPE} | changes
    return here.answer(leg(model(), **fields))


def served(memory: dict[str, bytes], endings: list[bool]) -> Hospital:
    """Return a hospital that has served so many legs with these endings."""
    here = hospital(memory, schedule=SCHEDULE)
    for number, aggregates in enumerate(endings, start=1):
        assert trained(ask(here, number, aggregates=aggregates))
    return here


def test_the_example_has_legs_of_both_kinds() -> None:
    assert {True, False} == set(DRAWN[:-1])
    assert DRAWN[-1]


def test_an_experiment_closes_when_its_schedule_was_kept_and_is_opened() -> None:
    here = served({}, DRAWN)

    assert isinstance(plain(here.answer(close(model(), schedule_seed=SEED.hex()))), Closed)


@pytest.mark.parametrize("opening", [None, bytes(32).hex(), SEED[::-1].hex()])
def test_a_schedule_that_is_not_opened_with_its_seed_does_not_close(opening: str | None) -> None:
    memory: dict[str, bytes] = {}
    here = served(memory, DRAWN[:3])
    before = dict(memory)

    reply = here.answer(close(model(), schedule_seed=opening))

    assert plain(reply) == Refusal(code=Code.AGAINST_SCHEDULE)
    assert remembered(memory) == remembered(before)
    assert isinstance(plain(here.answer(close(model(), schedule_seed=SEED.hex()))), Closed)


@pytest.mark.parametrize("is_aggregation", [True, False])
def test_a_leg_that_did_not_end_as_it_was_drawn_is_noticed_at_the_end(
    is_aggregation: bool,
) -> None:
    number = DRAWN.index(not is_aggregation) + 1
    endings = [*DRAWN[: number - 1], is_aggregation]
    here = served({}, endings)

    reply = here.answer(close(model(), schedule_seed=SEED.hex()))

    assert plain(reply) == Refusal(code=Code.AGAINST_SCHEDULE)


def test_no_more_aggregations_are_served_than_chance_explains() -> None:
    # p = 1/4. Of 7 legs at most 7/4 + 4·√(7·3/16) + 1 = 7.3 may aggregate, of 8 at most 7.9.
    memory: dict[str, bytes] = {}
    here = served(memory, [True] * 7)
    before = dict(memory)

    assert plain(ask(here, 8, aggregates=True)) == Refusal(code=Code.AGAINST_SCHEDULE)

    assert remembered(memory) == remembered(before)
    assert trained(ask(here, 8, aggregates=False))
    # Of 9 legs at most 9/4 + 4·√(27/16) + 1 = 8.4: now the eighth aggregation is possible.
    assert trained(ask(here, 9, aggregates=True))


def test_the_last_leg_aggregates_in_any_case() -> None:
    here, last = served({}, DRAWN[:1]), len(DRAWN)

    assert plain(ask(here, last, aggregates=False)) == Refusal(code=Code.AGAINST_SCHEDULE)
    assert trained(ask(here, last, aggregates=True))


def test_an_aggregate_is_accepted_after_an_aggregation_that_was_served() -> None:
    aggregate = {"carries": Carries.AGGREGATE}
    after = {kind: served({}, [kind]) for kind in (True, False)}

    assert trained(ask(after[True], 2, aggregates=False, **aggregate))
    reply = ask(after[False], 2, aggregates=False, **aggregate)
    assert plain(reply) == Refusal(code=Code.AGAINST_SCHEDULE)


def test_an_aggregate_is_accepted_after_legs_that_were_missed() -> None:
    # Any of them may have ended in an aggregation.
    here = served({}, [False])

    assert trained(ask(here, 3, aggregates=False, carries=Carries.AGGREGATE))


def test_no_more_aggregates_are_accepted_than_chance_explains() -> None:
    """A coordinator that left out every second leg had its own models trained in the others."""
    here = hospital(schedule=SCHEDULE | {"aggregation_period": 200})
    # p = 1/100. After k legs there were at most k/100 + 4·√(99k)/100 + 1 aggregations:
    # 1.6 before leg 3, 1.8 before leg 5, 2.03 before leg 7.
    aggregate = {"aggregates": False, "carries": Carries.AGGREGATE}

    assert trained(ask(here, 3, **aggregate))
    assert plain(ask(here, 5, **aggregate)) == Refusal(code=Code.AGAINST_SCHEDULE)
    assert trained(ask(here, 7, **aggregate))
