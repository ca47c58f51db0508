"""Routes with hospitals drawn, absent and silent: the design's promises, on plain strings."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages import Carries
from strategies.permutation import Permutation
from strategies.planner import Plan, Planner, Task
from strategies.schedule import Ending, Leg

PATIENT = settings(deadline=None, max_examples=150)


def make_legs(endings: str, rounds: Sequence[int] = ()) -> list[Leg]:
    """Return a leg for every letter: 'h' ends in a hand-over, 'a' in an aggregation."""
    legs, first = [], 0
    for number, letter in enumerate(endings, start=1):
        local = rounds[number - 1] if rounds else 1
        ending = Ending.AGGREGATION if letter == "a" else Ending.HAND_OVER
        legs.append(Leg(number, first, local, ending))
        first += local
    return legs


def make_planner(hospitals: int = 6, **changes: Any) -> Planner[str]:
    arguments = {
        "last_leg": 10**6,
        "start": (Carries.AGGREGATE, "first"),
        "permutation": "uniform",
        "fraction": 1.0,
        "route_seed": b"route",
    }
    return Planner(hospitals=hospitals, **arguments | changes)


def finish(planner: Planner[str], plan: Plan[str], silent: Collection[int] = ()) -> dict[int, str]:
    """End a leg: all who were asked answer, but for the silent ones."""
    asked = [task.hospital for task in plan.tasks if task.hospital not in silent]
    answers = {hospital: f"model of {hospital}, leg {plan.leg.number}" for hospital in asked}
    if plan.leg.ending is Ending.HAND_OVER:
        planner.handed_over(plan, answers)
    else:
        planner.aggregated(plan, answers, f"aggregate of leg {plan.leg.number}")
    return answers


def run(
    planner: Planner[str], legs: Iterable[Leg], silent: Collection[int] = ()
) -> list[Plan[str]]:
    plans = []
    for leg in legs:
        plans.append(planner.plan(leg, range(planner.hospitals)))
        finish(planner, plans[-1], silent)
    return plans


def by_hospital(plan: Plan[str]) -> dict[int, Task[str]]:
    return {task.hospital: task for task in plan.tasks}


# --- everybody answers ----------------------------------------------------------------------------


def test_with_everybody_present_a_leg_asks_all_for_its_rounds_and_permutes_the_models() -> None:
    legs = make_legs("hhahha", rounds=[1, 3, 2, 1, 1, 2])
    for leg, plan in zip(legs, run(make_planner(), legs), strict=True):
        assert plan.drawn == plan.cohort == (0, 1, 2, 3, 4, 5)
        assert [task.hospital for task in plan.tasks] == [0, 1, 2, 3, 4, 5]
        for task in plan.tasks:
            assert (task.leg, task.first_round) == (leg.number, leg.first_round)
            assert task.local_rounds == leg.local_rounds
        recipients = [task.recipient for task in plan.tasks]
        if leg.ending is Ending.HAND_OVER:
            assert sorted(recipients) == [0, 1, 2, 3, 4, 5]  # type: ignore[type-var]
        else:
            assert recipients == [None] * 6


def test_a_model_goes_to_whom_the_plan_names_and_the_aggregate_to_all() -> None:
    planner = make_planner()
    carried: dict[int, tuple[Carries, str]] = dict.fromkeys(range(6), (Carries.AGGREGATE, "first"))
    for leg in make_legs("hhhahha"):
        plan = planner.plan(leg, range(6))
        for hospital, task in by_hospital(plan).items():
            assert (task.parcel.carries, task.parcel.content) == carried[hospital]
        answers = finish(planner, plan)
        if leg.ending is Ending.HAND_OVER:
            carried = {
                task.recipient: (Carries.ENVELOPE, answers[task.hospital])  # type: ignore[misc]
                for task in plan.tasks
            }
        else:
            aggregate = f"aggregate of leg {leg.number}"
            carried = dict.fromkeys(range(6), (Carries.AGGREGATE, aggregate))


def test_with_own_init_the_first_requests_carry_nothing() -> None:
    plan = make_planner(start=(Carries.NOTHING, "")).plan(make_legs("h")[0], range(6))
    assert {task.parcel.carries for task in plan.tasks} == {Carries.NOTHING}


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_plans_follow_from_the_route_seed_alone(fraction: float) -> None:
    legs = make_legs("hhhhahhhha")

    def plans(seed: bytes) -> list[tuple[Any, ...]]:
        planner = make_planner(route_seed=seed, fraction=fraction)
        return [
            (plan.drawn, [(task.hospital, task.recipient) for task in plan.tasks])
            for plan in run(planner, legs)
        ]

    assert plans(b"one") == plans(b"one")
    assert plans(b"one") != plans(b"two")


def test_coverage_lets_every_chain_visit_every_hospital_between_aggregations() -> None:
    planner = make_planner(5, permutation="coverage")
    legs = make_legs("hhhha" * 2)
    for tour in (legs[:5], legs[5:]):
        plans = run(planner, tour)
        for task in plans[-1].tasks:  # those it visited, and the one it is trained at now
            assert set(task.parcel.chain.visits) | {task.hospital} == {0, 1, 2, 3, 4}
            assert task.parcel.chain.visits.total() == 4


def test_an_aggregation_clears_what_a_chain_has_visited() -> None:
    planner = make_planner(4, permutation="coverage")
    run(planner, make_legs("hha"))
    plan = planner.plan(make_legs("hhah")[3], range(4))
    assert [task.parcel.chain.visits.total() for task in plan.tasks] == [0, 0, 0, 0]


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
        for task in plan.tasks:
            trained[task.hospital] += range(task.first_round, task.first_round + task.local_rounds)
    every_round = list(range(planned[-1].last_round + 1))
    assert all(rounds == every_round for rounds in trained.values())
    assert planner.lost_chains == 0


def test_who_is_not_drawn_keeps_what_it_last_got() -> None:
    planner = make_planner(6, fraction=0.5)
    latest = dict.fromkeys(range(6), "first")
    for leg in make_legs("hhahhhahahhahhhha"):
        plan = planner.plan(leg, range(6))
        assert {h: task.parcel.content for h, task in by_hospital(plan).items()} == {
            hospital: latest[hospital] for hospital in plan.drawn
        }
        answers = finish(planner, plan)
        if leg.ending is Ending.AGGREGATION:
            latest |= dict.fromkeys(plan.drawn, f"aggregate of leg {leg.number}")
        else:
            recipients = [task.recipient for task in plan.tasks]
            assert sorted(recipients) == list(plan.drawn)  # type: ignore[type-var]
            latest |= {t.recipient: answers[t.hospital] for t in plan.tasks}  # type: ignore[misc]


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
    assert [task.hospital for task in plan.tasks] == [2, 7]
    assert planner.plan(make_legs("hh")[1], ()).cohort == ()


# --- hospitals that are absent or do not answer ---------------------------------------------------


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
        (task.hospital, task.parcel.content)
        for task in planner.plan(legs[2], range(4)).tasks
        if task.parcel.content == "model of 1, leg 2"
    ]
    assert late == [(recipient, "model of 1, leg 2")]


def test_who_comes_back_from_a_parked_request_does_not_make_up_for_missed_rounds() -> None:
    planner = make_planner(3)
    legs = make_legs("hhha", rounds=[2, 2, 2, 2])
    finish(planner, planner.plan(legs[0], range(3)), silent={0})
    finish(planner, planner.plan(legs[1], range(3)), silent={0})
    finish(planner, planner.plan(legs[2], range(3)))
    last = planner.plan(legs[3], range(3))
    assert {(task.first_round, task.local_rounds) for task in last.tasks} == {(6, 2)}


def test_absent_hospitals_are_drawn_but_not_asked_and_do_not_make_up_for_it() -> None:
    planner = make_planner(4)
    legs = make_legs("hh", rounds=[3, 2])
    plan = planner.plan(legs[0], {0, 1, 2})
    assert (plan.drawn, plan.cohort) == ((0, 1, 2, 3), (0, 1, 2))
    assert sorted(task.recipient or 0 for task in plan.tasks) == [0, 1, 2]
    finish(planner, plan)
    assert planner.parked == ()
    back = by_hospital(planner.plan(legs[1], range(4)))[3]
    assert (back.first_round, back.local_rounds) == (3, 2)
    assert (back.parcel.carries, back.parcel.content) == (Carries.AGGREGATE, "first")


def test_recipients_without_a_model_come_first() -> None:
    for seed in range(30):
        planner = make_planner(6, route_seed=bytes([seed]), permutation="derangement")
        legs = make_legs("hhh")
        first = planner.plan(legs[0], range(6))
        finish(planner, first, silent={0, 1})
        idle = {by_hospital(first)[0].recipient, by_hospital(first)[1].recipient} - {0, 1}
        second = planner.plan(legs[1], range(6))
        # 0 and 1 are asked again, so their recipients may be served soon: nobody else is without.
        fresh = [task for task in second.tasks if task.leg == 2]
        recipients = [task.recipient for task in fresh]
        assert len(set(recipients)) == len(recipients)
        assert not {0, 1} & set(recipients)  # whose answers are overdue
        others = {2, 3, 4, 5} - idle
        assert others <= set(recipients) or set(recipients) <= others


def test_a_hospital_that_never_answers_takes_at_most_one_more_chain_with_it() -> None:
    # One leg may hand it a model before its silence is known.
    for seed in range(30):
        planner = make_planner(3, route_seed=bytes([seed]))
        plans = run(planner, make_legs("h" * 12), silent={1})
        moving = [sum(task.hospital != 1 for task in plan.tasks) for plan in plans[1:]]
        assert set(moving) <= {1, 2}
        assert len(set(moving)) == 1


def test_no_chain_is_sent_to_a_hospital_whose_answer_is_overdue_while_others_are_free() -> None:
    legs, tried = make_legs("hhh"), 0
    for seed in range(60):
        planner = make_planner(4, route_seed=bytes([seed]))
        finish(planner, planner.plan(legs[0], range(4)), silent={0})
        second = planner.plan(legs[1], {1, 2, 3})
        # A sender that nobody sends to falls silent: it holds nothing but its parked request.
        unserved = set(by_hospital(second)) - {task.recipient for task in second.tasks}
        if len(second.tasks) < 3 and unserved:
            (overdue,) = unserved
            finish(planner, second, silent={overdue})
            third = planner.plan(legs[2], {1, 2, 3})
            assert overdue not in {task.recipient for task in third.tasks if task.leg == 3}
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
        assert [(task.hospital, task.leg) for task in second.tasks] == [(0, 1)]
        finish(planner, second)
        third = by_hospital(planner.plan(legs[2], range(2)))
        assert third[0].parcel.content == "model of 1, leg 1"
        assert third[1].parcel.content == "model of 0, leg 2"
        return
    pytest.fail("no seed let 0 send to 1")


@pytest.mark.parametrize("permutation", ["uniform", "derangement", "coverage"])
def test_a_leg_may_consist_of_parked_requests_only(permutation: Permutation) -> None:
    planner = make_planner(3, permutation=permutation)
    legs = make_legs("hhh")
    finish(planner, planner.plan(legs[0], range(3)), silent={0, 1, 2})
    plan = planner.plan(legs[1], range(3))
    assert [task.leg for task in plan.tasks] == [1, 1, 1]
    finish(planner, plan)
    assert len(planner.plan(legs[2], range(3)).tasks) == 3


def test_an_aggregation_closes_parked_chains_and_all_go_on_from_it_present_or_not() -> None:
    planner = make_planner(4, permutation="derangement")
    legs = make_legs("hahh")
    finish(planner, planner.plan(legs[0], range(4)), silent={3})
    plan = planner.plan(legs[1], {0, 1, 2})
    assert all(task.recipient is None and task.leg == 2 for task in plan.tasks)
    assert 3 not in by_hospital(plan)
    finish(planner, plan)
    assert planner.parked == ()
    finish(planner, planner.plan(legs[2], {0, 1, 2}))
    back = by_hospital(planner.plan(legs[3], range(4)))[3].parcel
    assert (back.carries, back.content) == (Carries.AGGREGATE, "aggregate of leg 2")


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


# --- a random walk, followed in a second book -----------------------------------------------------


@dataclass
class Book:
    """The design's table of failures, kept a second time, as directly as it can be said."""

    hospitals: int
    waiting: list[list[str]] = field(init=False)
    parked: dict[int, Task[str]] = field(default_factory=dict)
    next_round: list[int] = field(init=False)
    lost: int = 0

    def __post_init__(self) -> None:
        self.waiting = [["first"] for _ in range(self.hospitals)]
        self.next_round = [0] * self.hospitals

    @property
    def chains(self) -> int:
        return sum(map(len, self.waiting)) + len(self.parked)

    def check(self, plan: Plan[str], present: set[int]) -> None:
        tasks = by_hospital(plan)
        assert len(tasks) == len(plan.tasks), "a hospital trains two models in one leg"
        assert plan.cohort == tuple(h for h in plan.drawn if h in present)
        assert set(tasks) <= set(plan.cohort)
        hand_over = plan.leg.ending is Ending.HAND_OVER
        for hospital in plan.cohort:
            task = tasks.get(hospital)
            if hand_over and hospital in self.parked:
                assert task is self.parked[hospital]
            elif self.waiting[hospital]:
                assert task is not None
                assert task.parcel.content == self.waiting[hospital][0]
                assert task.leg == plan.leg.number
                assert task.first_round == self.next_round[hospital]
                assert task.first_round + task.local_rounds == plan.leg.last_round + 1
            else:
                assert task is None
        if hand_over:
            self.check_recipients(plan)
        else:
            assert all(task.recipient is None for task in plan.tasks)

    def check_recipients(self, plan: Plan[str]) -> None:
        fresh = [task for task in plan.tasks if task.leg == plan.leg.number]
        recipients = [task.recipient for task in fresh if task.recipient is not None]
        assert len(set(recipients)) == len(fresh)
        assert set(recipients) <= set(plan.cohort)
        senders = {task.hospital for task in fresh}
        promised = {task.recipient for task in plan.tasks if task.leg < plan.leg.number}
        in_time = set(plan.cohort) - set(self.parked)
        without = {
            hospital
            for hospital in in_time - promised
            if len(self.waiting[hospital]) == (hospital in senders)
        }
        for first in (without, in_time):
            assert first <= set(recipients) or set(recipients) <= first

    def end(self, plan: Plan[str], answers: dict[int, str]) -> None:
        for hospital in plan.drawn:
            self.next_round[hospital] = plan.leg.last_round + 1
        if plan.leg.ending is Ending.HAND_OVER:
            before = self.chains
            for task in plan.tasks:
                if task.hospital not in self.parked:
                    self.waiting[task.hospital].pop(0)
            for task in plan.tasks:
                if task.hospital in answers:
                    self.parked.pop(task.hospital, None)
                    assert task.recipient is not None
                    self.waiting[task.recipient].append(answers[task.hospital])
                else:
                    self.parked[task.hospital] = task
            assert self.chains == before, "a chain was lost or doubled in a hand-over"
        else:
            for hospital in plan.drawn:
                held = len(self.waiting[hospital]) + (hospital in self.parked)
                self.lost += held - (hospital in answers)
                self.parked.pop(hospital, None)
                self.waiting[hospital] = [f"aggregate of leg {plan.leg.number}"]


some = st.sets(st.integers(0, 6))


@PATIENT
@given(
    hospitals=st.integers(2, 7),
    fraction=st.sampled_from([1.0, 0.4, 0.7]),
    permutation=st.sampled_from(["uniform", "derangement", "coverage"]),
    seed=st.binary(min_size=1, max_size=2),
    events=st.lists(
        st.tuples(st.sampled_from("hhhha"), st.integers(1, 3), some, some), min_size=1, max_size=14
    ),
)
def test_no_chain_is_lost_or_doubled_whoever_is_absent_or_silent(
    hospitals: int,
    fraction: float,
    permutation: Permutation,
    seed: bytes,
    events: list[tuple[str, int, set[int], set[int]]],
) -> None:
    legs = make_legs("".join(e[0] for e in events) + "a", [e[1] for e in events] + [1])
    planner = make_planner(
        hospitals,
        fraction=fraction,
        permutation=permutation,
        route_seed=seed,
        last_leg=len(legs),
    )
    book = Book(hospitals)
    for leg, (_, _, absent, silent) in zip(legs, [*events, ("a", 1, set(), set())], strict=True):
        present = set(range(hospitals)) - absent
        plan = planner.plan(leg, present)
        book.check(plan, present)
        book.end(plan, finish(planner, plan, silent))
        assert planner.parked == tuple(sorted(book.parked))
        assert planner.lost_chains == book.lost
    assert book.chains == hospitals  # after the last aggregation everybody has one model
