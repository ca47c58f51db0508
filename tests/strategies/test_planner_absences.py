"""Routes with hospitals that are absent or do not answer: the design's promises."""

import pytest

from protocol.messages import Carries
from strategies.routing.permutation import Permutation
from tests.strategies.planner_cases import by_hospital, finish, make_legs, make_planner, run


def test_a_parked_request_is_asked_again_unchanged_and_the_others_go_on() -> None:
    planner = make_planner()
    legs = make_legs("hhhh", rounds=[2, 3, 1, 1])
    first = planner.plan(legs[0], range(6))
    parked = by_hospital(first)[2]
    finish(planner, first, silent={2})
    assert planner.parked == (2,)
    for leg in legs[1:3]:
        plan = planner.plan(leg, range(6))
        assert by_hospital(plan)[2] is parked
        assert all(t.leg == leg.number for h, t in by_hospital(plan).items() if h != 2)
        finish(planner, plan, silent={2})
    # While it is away nobody asks for it, and afterwards it is the same request still.
    finish(planner, planner.plan(make_legs("hhhhh")[4], {0, 1, 3, 4, 5}))
    assert planner.parked == (2,)
    plan = planner.plan(make_legs("hhhhhh")[5], range(6))
    assert by_hospital(plan)[2] is parked
    assert (parked.leg, parked.first_round, parked.local_rounds) == (1, 0, 2)


def test_a_late_answer_moves_the_chain_on_to_its_planned_recipient() -> None:
    planner = make_planner(4, permutation="derangement")
    legs = make_legs("hhh")
    first = planner.plan(legs[0], range(4))
    recipient = by_hospital(first)[1].recipient
    assert recipient is not None
    finish(planner, first, silent={1})
    second = planner.plan(legs[1], range(4))
    assert recipient not in by_hospital(second)  # it was to receive the model, and sits the leg out
    finish(planner, second)
    assert planner.parked == ()
    late = [
        (assignment.hospital, assignment.queued.model.name)
        for assignment in planner.plan(legs[2], range(4)).assignments
        if assignment.queued.model.name == "model of 1, leg 2"
    ]
    assert late == [(recipient, "model of 1, leg 2")]


def test_who_comes_back_from_a_parked_request_does_not_make_up_for_missed_rounds() -> None:
    planner = make_planner(3)
    legs = make_legs("hhha", rounds=[2, 2, 2, 2])
    finish(planner, planner.plan(legs[0], range(3)), silent={0})
    finish(planner, planner.plan(legs[1], range(3)), silent={0})
    finish(planner, planner.plan(legs[2], range(3)))
    last = planner.plan(legs[3], range(3))
    assert {
        (assignment.first_round, assignment.local_rounds) for assignment in last.assignments
    } == {(6, 2)}


def test_absent_hospitals_are_drawn_but_not_asked_and_do_not_make_up_for_it() -> None:
    planner = make_planner(4)
    legs = make_legs("hh", rounds=[3, 2])
    plan = planner.plan(legs[0], {0, 1, 2})
    assert (plan.drawn, plan.cohort) == ((0, 1, 2, 3), (0, 1, 2))
    assert sorted(assignment.recipient or 0 for assignment in plan.assignments) == [0, 1, 2]
    finish(planner, plan)
    assert planner.parked == ()
    back = by_hospital(planner.plan(legs[1], range(4)))[3]
    assert (back.first_round, back.local_rounds) == (3, 2)
    assert (back.queued.carries, back.queued.model.name) == (Carries.AGGREGATE, "first")


def test_recipients_without_a_model_come_first() -> None:
    for seed in range(30):
        planner = make_planner(6, route_seed=bytes([seed]), permutation="derangement")
        legs = make_legs("hhh")
        first = planner.plan(legs[0], range(6))
        finish(planner, first, silent={0, 1})
        idle = {by_hospital(first)[0].recipient, by_hospital(first)[1].recipient} - {0, 1}
        second = planner.plan(legs[1], range(6))
        # 0 and 1 are asked again, so their recipients may be served soon: nobody else is without.
        fresh = [assignment for assignment in second.assignments if assignment.leg == 2]
        recipients = [assignment.recipient for assignment in fresh]
        assert len(set(recipients)) == len(recipients)
        assert not {0, 1} & set(recipients)  # whose answers are overdue
        others = {2, 3, 4, 5} - idle
        assert others <= set(recipients) or set(recipients) <= others


def test_a_hospital_that_never_answers_takes_at_most_one_more_chain_with_it() -> None:
    # One leg may hand it a model before its silence is known.
    for seed in range(30):
        planner = make_planner(3, route_seed=bytes([seed]))
        plans = run(planner, make_legs("h" * 12), silent={1})
        moving = [
            sum(assignment.hospital != 1 for assignment in plan.assignments) for plan in plans[1:]
        ]
        assert set(moving) <= {1, 2}
        assert len(set(moving)) == 1


def test_no_chain_is_sent_to_a_hospital_whose_answer_is_overdue_while_others_are_free() -> None:
    legs, tried = make_legs("hhh"), 0
    for seed in range(60):
        planner = make_planner(4, route_seed=bytes([seed]))
        finish(planner, planner.plan(legs[0], range(4)), silent={0})
        second = planner.plan(legs[1], {1, 2, 3})
        # A sender that nobody sends to falls silent: it holds nothing but its parked request.
        unserved = set(by_hospital(second)) - {
            assignment.recipient for assignment in second.assignments
        }
        if len(second.assignments) < 3 and unserved:
            (overdue,) = unserved
            finish(planner, second, silent={overdue})
            third = planner.plan(legs[2], {1, 2, 3})
            assert overdue not in {
                assignment.recipient for assignment in third.assignments if assignment.leg == 3
            }
            tried += 1
    assert tried > 10


def test_a_hospital_trains_one_model_a_leg_the_oldest_first() -> None:
    # 0's late model and a fresh one both wait for the same hospital.
    for seed in range(50):
        planner = make_planner(2, route_seed=bytes([seed]), permutation="uniform")
        legs = make_legs("hhhh")
        first = planner.plan(legs[0], range(2))
        if by_hospital(first)[0].recipient != 1:  # so 1's own model goes to 0
            continue
        finish(planner, first, silent={0})
        # 0 now has a parked request and 1's model waiting; 1 has nothing.
        second = planner.plan(legs[1], range(2))
        assert [(assignment.hospital, assignment.leg) for assignment in second.assignments] == [
            (0, 1)
        ]
        finish(planner, second)
        third = by_hospital(planner.plan(legs[2], range(2)))
        assert third[0].queued.model.name == "model of 1, leg 1"
        assert third[1].queued.model.name == "model of 0, leg 2"
        return
    pytest.fail("no seed let 0 send to 1")


@pytest.mark.parametrize("permutation", ["uniform", "derangement", "coverage"])
def test_a_leg_may_consist_of_parked_requests_only(permutation: Permutation) -> None:
    planner = make_planner(3, permutation=permutation)
    legs = make_legs("hhh")
    finish(planner, planner.plan(legs[0], range(3)), silent={0, 1, 2})
    plan = planner.plan(legs[1], range(3))
    assert [assignment.leg for assignment in plan.assignments] == [1, 1, 1]
    finish(planner, plan)
    assert len(planner.plan(legs[2], range(3)).assignments) == 3


def test_an_aggregation_closes_parked_chains_and_all_go_on_from_it_present_or_not() -> None:
    planner = make_planner(4, permutation="derangement")
    legs = make_legs("hahh")
    finish(planner, planner.plan(legs[0], range(4)), silent={3})
    plan = planner.plan(legs[1], {0, 1, 2})
    assert all(
        assignment.recipient is None and assignment.leg == 2 for assignment in plan.assignments
    )
    assert 3 not in by_hospital(plan)
    finish(planner, plan)
    assert planner.parked == ()
    finish(planner, planner.plan(legs[2], {0, 1, 2}))
    back = by_hospital(planner.plan(legs[3], range(4)))[3].queued
    assert (back.carries, back.model.name) == (Carries.AGGREGATE, "aggregate of leg 2")


def test_a_hospital_that_is_back_at_an_aggregation_sends_what_waits_for_it() -> None:
    for seed in range(20):
        planner = make_planner(4, route_seed=bytes([seed]), permutation="derangement")
        legs = make_legs("ha")
        first = planner.plan(legs[0], range(4))
        without = by_hospital(first)[3].recipient
        finish(planner, first, silent={3})
        second = planner.plan(legs[1], range(4))
        # All but the one whose model is parked: 3 too, with the model it was sent.
        assert set(by_hospital(second)) == {0, 1, 2, 3} - {without}
        finish(planner, second)
        assert planner.lost_chains == 1


def test_lost_chains_are_those_an_aggregation_did_not_get() -> None:
    planner = make_planner(5)
    legs = make_legs("aa")
    finish(planner, planner.plan(legs[0], range(5)))
    assert planner.lost_chains == 0
    finish(planner, planner.plan(legs[1], {0, 1, 2, 3}), silent={0})
    assert planner.lost_chains == 2  # 4 was absent, 0 silent
