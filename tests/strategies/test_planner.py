"""Routes where everybody answers, and where only some are drawn."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import Carries
from protocol.schedule import Ending
from strategies.routing.permutation import Permutation
from strategies.routing.planner import ModelRef
from tests.strategies.planner_cases import (
    PATIENT,
    by_hospital,
    finish,
    make_legs,
    make_planner,
    run,
)

# --- everybody answers ----------------------------------------------------------------------------


def test_with_everybody_present_a_leg_asks_all_for_its_rounds_and_permutes_the_models() -> None:
    legs = make_legs("hhahha", rounds=[1, 3, 2, 1, 1, 2])
    for leg, plan in zip(legs, run(make_planner(), legs), strict=True):
        assert plan.drawn == plan.cohort == (0, 1, 2, 3, 4, 5)
        assert [assignment.hospital for assignment in plan.assignments] == [0, 1, 2, 3, 4, 5]
        for assignment in plan.assignments:
            assert (assignment.leg, assignment.first_round) == (leg.number, leg.first_round)
            assert assignment.local_rounds == leg.local_rounds
        recipients = [assignment.recipient for assignment in plan.assignments]
        if leg.ending is Ending.HAND_OVER:
            assert sorted(recipients) == [0, 1, 2, 3, 4, 5]  # type: ignore[type-var]
        else:
            assert recipients == [None] * 6


def test_a_model_goes_to_whom_the_plan_names_and_the_aggregate_to_all() -> None:
    planner = make_planner()
    carried: dict[int, tuple[Carries, str]] = dict.fromkeys(range(6), (Carries.AGGREGATE, "first"))
    for leg in make_legs("hhhahha"):
        plan = planner.plan(leg, range(6))
        for hospital, assignment in by_hospital(plan).items():
            assert (assignment.queued.carries, assignment.queued.model.name) == carried[hospital]
        answers = finish(planner, plan)
        if leg.ending is Ending.HAND_OVER:
            carried = {
                assignment.recipient: (Carries.ENVELOPE, answers[assignment.hospital])  # type: ignore[misc]
                for assignment in plan.assignments
            }
        else:
            aggregate = f"aggregate of leg {leg.number}"
            carried = dict.fromkeys(range(6), (Carries.AGGREGATE, aggregate))


def test_with_own_init_the_first_requests_carry_nothing() -> None:
    plan = make_planner(start=(Carries.NOTHING, ModelRef(""))).plan(make_legs("h")[0], range(6))
    assert {assignment.queued.carries for assignment in plan.assignments} == {Carries.NOTHING}


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_plans_follow_from_the_route_seed_alone(fraction: float) -> None:
    legs = make_legs("hhhhahhhha")

    def plans(seed: bytes) -> list[tuple[Any, ...]]:
        planner = make_planner(route_seed=seed, fraction=fraction)
        return [
            (
                plan.drawn,
                [(assignment.hospital, assignment.recipient) for assignment in plan.assignments],
            )
            for plan in run(planner, legs)
        ]

    assert plans(b"one") == plans(b"one")
    assert plans(b"one") != plans(b"two")


def test_coverage_lets_every_chain_visit_every_hospital_between_aggregations() -> None:
    planner = make_planner(5, permutation="coverage")
    legs = make_legs("hhhha" * 2)
    for tour in (legs[:5], legs[5:]):
        plans = run(planner, tour)
        for assignment in plans[
            -1
        ].assignments:  # those it visited, and the one it is trained at now
            assert set(assignment.queued.chain.visits) | {assignment.hospital} == {0, 1, 2, 3, 4}
            assert assignment.queued.chain.visits.total() == 4


def test_an_aggregation_clears_what_a_chain_has_visited() -> None:
    planner = make_planner(4, permutation="coverage")
    run(planner, make_legs("hha"))
    plan = planner.plan(make_legs("hhah")[3], range(4))
    assert [assignment.queued.chain.visits.total() for assignment in plan.assignments] == [
        0,
        0,
        0,
        0,
    ]


# --- subsampling ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hospitals", "fraction", "size"),
    [
        (10, 0.3, 3),
        (10, 0.34, 3),
        (10, 0.36, 4),
        (10, 0.01, 2),
        (3, 0.1, 2),
        (7, 0.99, 7),
        (2, 0.1, 2),
    ],
)
def test_as_many_are_drawn_as_the_fraction_says_but_at_least_two(
    hospitals: int, fraction: float, size: int
) -> None:
    planner = make_planner(hospitals, fraction=fraction)
    plans = run(planner, make_legs("h" * 20))
    assert {len(plan.drawn) for plan in plans} == {size}
    assert all(plan.drawn == tuple(sorted(set(plan.drawn))) for plan in plans)


def test_everybody_is_drawn_equally_often() -> None:
    planner = make_planner(6, fraction=0.5)
    drawn = Counter(h for plan in run(planner, make_legs("h" * 1000)) for h in plan.drawn)
    assert all(abs(drawn[hospital] - 500) < 80 for hospital in range(6))  # 5 standard deviations


def test_the_last_leg_draws_everybody() -> None:
    planner = make_planner(8, fraction=0.25, last_leg=4)
    assert [len(plan.drawn) for plan in run(planner, make_legs("hhha"))] == [2, 2, 2, 8]


@PATIENT
@given(
    hospitals=st.integers(2, 7),
    fraction=st.floats(0.05, 1.0),
    legs=st.lists(st.tuples(st.sampled_from("ha"), st.integers(1, 4)), min_size=1, max_size=20),
    permutation=st.sampled_from(["uniform", "derangement", "coverage"]),
)
def test_who_is_not_drawn_catches_up_on_exactly_the_missed_rounds(
    hospitals: int, fraction: float, legs: list[tuple[str, int]], permutation: Permutation
) -> None:
    endings = "".join(letter for letter, _ in legs) + "a"
    planned = make_legs(endings, [rounds for _, rounds in legs] + [1])
    planner = make_planner(
        hospitals, fraction=fraction, last_leg=len(planned), permutation=permutation
    )
    trained: dict[int, list[int]] = {hospital: [] for hospital in range(hospitals)}
    for plan in run(planner, planned):
        for assignment in plan.assignments:
            trained[assignment.hospital] += range(
                assignment.first_round, assignment.first_round + assignment.local_rounds
            )
    every_round = list(range(planned[-1].last_round + 1))
    assert all(rounds == every_round for rounds in trained.values())
    assert planner.lost_chains == 0


def test_who_is_not_drawn_keeps_what_it_last_got() -> None:
    planner = make_planner(6, fraction=0.5)
    latest = dict.fromkeys(range(6), "first")
    for leg in make_legs("hhahhhahahhahhhha"):
        plan = planner.plan(leg, range(6))
        assert {h: assignment.queued.model.name for h, assignment in by_hospital(plan).items()} == {
            hospital: latest[hospital] for hospital in plan.drawn
        }
        answers = finish(planner, plan)
        if leg.ending is Ending.AGGREGATION:
            latest |= dict.fromkeys(plan.drawn, f"aggregate of leg {leg.number}")
        else:
            recipients = [assignment.recipient for assignment in plan.assignments]
            assert sorted(recipients) == list(plan.drawn)  # type: ignore[type-var]
            latest |= {t.recipient: answers[t.hospital] for t in plan.assignments}  # type: ignore[misc]


def test_the_cohort_is_drawn_from_those_present() -> None:
    planner = make_planner(10, fraction=0.3)
    for leg in make_legs("h" * 30):
        plan = planner.plan(leg, {1, 4, 6, 9})
        assert set(plan.drawn) < {1, 4, 6, 9}
        assert plan.cohort == plan.drawn
        finish(planner, plan)


def test_with_too_few_present_absent_ones_are_drawn_too_and_missed() -> None:
    planner = make_planner(10, fraction=0.5)
    plan = planner.plan(make_legs("h")[0], {2, 7})
    assert len(plan.drawn) == 5
    assert plan.cohort == (2, 7)
    assert {2, 7} < set(plan.drawn)
    assert [assignment.hospital for assignment in plan.assignments] == [2, 7]
    assert planner.plan(make_legs("hh")[1], ()).cohort == ()
