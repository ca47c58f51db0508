"""Routes on a random walk of absences and silence, followed in a second book."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from protocol.schedule import Ending
from strategies.routing.permutation import Permutation
from strategies.routing.planner import Assignment, Plan
from tests.strategies.planner_cases import PATIENT, by_hospital, finish, make_legs, make_planner


@dataclass
class Book:
    """The design's table of failures, kept a second time, as directly as it can be said."""

    hospitals: int
    waiting: list[list[str]] = field(init=False)
    parked: dict[int, Assignment] = field(default_factory=dict)
    next_round: list[int] = field(init=False)
    lost: int = 0

    def __post_init__(self) -> None:
        self.waiting = [["first"] for _ in range(self.hospitals)]
        self.next_round = [0] * self.hospitals

    @property
    def chains(self) -> int:
        return sum(map(len, self.waiting)) + len(self.parked)

    def check(self, plan: Plan, present: set[int]) -> None:
        assignments = by_hospital(plan)
        assert len(assignments) == len(plan.assignments), "a hospital trains two models in one leg"
        assert plan.cohort == tuple(h for h in plan.drawn if h in present)
        assert set(assignments) <= set(plan.cohort)
        hand_over = plan.leg.ending is Ending.HAND_OVER
        for hospital in plan.cohort:
            assignment = assignments.get(hospital)
            if hand_over and hospital in self.parked:
                assert assignment is self.parked[hospital]
            elif self.waiting[hospital]:
                assert assignment is not None
                assert assignment.queued.model.name == self.waiting[hospital][0]
                assert assignment.leg == plan.leg.number
                assert assignment.first_round == self.next_round[hospital]
                assert assignment.first_round + assignment.local_rounds == plan.leg.last_round + 1
            else:
                assert assignment is None
        if hand_over:
            self.check_recipients(plan)
        else:
            assert all(assignment.recipient is None for assignment in plan.assignments)

    def check_recipients(self, plan: Plan) -> None:
        fresh = [assignment for assignment in plan.assignments if assignment.leg == plan.leg.number]
        recipients = [
            assignment.recipient for assignment in fresh if assignment.recipient is not None
        ]
        assert len(set(recipients)) == len(fresh)
        assert set(recipients) <= set(plan.cohort)
        senders = {assignment.hospital for assignment in fresh}
        promised = {
            assignment.recipient
            for assignment in plan.assignments
            if assignment.leg < plan.leg.number
        }
        in_time = set(plan.cohort) - set(self.parked)
        without = {
            hospital
            for hospital in in_time - promised
            if len(self.waiting[hospital]) == (hospital in senders)
        }
        for first in (without, in_time):
            assert first <= set(recipients) or set(recipients) <= first

    def end(self, plan: Plan, answers: dict[int, str]) -> None:
        for hospital in plan.drawn:
            self.next_round[hospital] = plan.leg.last_round + 1
        if plan.leg.ending is Ending.HAND_OVER:
            before = self.chains
            for assignment in plan.assignments:
                if assignment.hospital not in self.parked:
                    self.waiting[assignment.hospital].pop(0)
            for assignment in plan.assignments:
                if assignment.hospital in answers:
                    self.parked.pop(assignment.hospital, None)
                    assert assignment.recipient is not None
                    self.waiting[assignment.recipient].append(answers[assignment.hospital])
                else:
                    self.parked[assignment.hospital] = assignment
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
