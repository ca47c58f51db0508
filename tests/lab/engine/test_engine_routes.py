"""The engine's shortcuts, each against the slower thing that it stands for."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.routes import Routes
from protocol.messages import Carries
from protocol.randomness import TrainingStreams, draw_batches
from protocol.schedule import Ending, Schedule
from strategies.routing.planner import ModelRef, Planner


@settings(max_examples=60, deadline=None)
@given(
    hospitals=st.integers(2, 9),
    fraction=st.floats(0.05, 1),
    permutation=st.sampled_from(["uniform", "derangement", "coverage"]),
    rounds=st.integers(1, 14),
    daisy=st.none() | st.integers(1, 3),
    aggregation=st.none() | st.integers(1, 6),
    seed=st.binary(min_size=32, max_size=32),
)
def test_routes_are_the_planners(
    hospitals: int,
    fraction: float,
    permutation: Any,
    rounds: int,
    daisy: int | None,
    aggregation: int | None,
    seed: bytes,
) -> None:
    """Follow every model by a name of its own: the planner's queue, the engine's slot."""
    legs = Schedule(rounds, daisy, aggregation).legs
    common: dict[str, Any] = {
        "hospitals": hospitals,
        "last_leg": legs[-1].number,
        "permutation": permutation,
        "fraction": fraction,
        "route_seed": seed,
    }
    planner = Planner(start=(Carries.AGGREGATE, ModelRef("first")), **common)
    routes = Routes(counts_visits=True, **common)
    name_of: dict[int, str] = {}
    for leg in legs:
        plan, work = planner.plan(leg, set(range(hospitals))), routes.work(leg)
        assert [assignment.hospital for assignment in plan.assignments] == work.hospitals.tolist()
        assert [
            assignment.first_round for assignment in plan.assignments
        ] == work.first_rounds.tolist()
        assert work.client_rounds == sum(assignment.local_rounds for assignment in plan.assignments)
        visited = routes.visited(work)
        for number, assignment in enumerate(plan.assignments):
            if assignment.queued.carries is Carries.ENVELOPE:
                assert assignment.queued.model.name == name_of[int(work.slots[number])]
            chain = {assignment.hospital} | set(assignment.queued.chain.visits)
            assert chain == set(np.flatnonzero(visited[number]).tolist())
        if leg.ending is Ending.HAND_OVER:
            slots = dict(zip(work.hospitals.tolist(), work.slots.tolist(), strict=True))
            name_of |= {slot: f"leg {leg.number}, slot {slot}" for slot in slots.values()}
            sent = {hospital: ModelRef(name_of[slot]) for hospital, slot in slots.items()}
            planner.handed_over(plan, sent)
            routes.hand_over(leg, work)
        else:
            planner.aggregated(plan, work.hospitals.tolist(), ModelRef("aggregate"))
            routes.aggregated(work)
    assert sorted(routes.slot_of.tolist()) == list(range(hospitals))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.binary(min_size=32, max_size=32),
    examples=st.integers(1, 10_000),
    fraction=st.floats(0, 1),
    first=st.integers(0, 10**9),
)
def test_batches_drawn_together_are_those_drawn_alone(
    seed: bytes, examples: int, fraction: float, first: int
) -> None:
    size = max(1, min(examples, 80, round(fraction * examples)))
    positions, rounds = [0, 5, 2], range(first, first + 4)
    names = [(position, round_) for round_ in rounds for position in positions]
    table = draw_batches(seed, names, examples, size)
    for batch, (position, round_) in zip(table, names, strict=True):
        alone = TrainingStreams(seed, position).batch(round_, examples, size)
        assert batch.tolist() == alone.tolist()
