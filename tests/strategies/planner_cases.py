"""Legs and planners over models that are only names, for the tests of routes."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from hypothesis import settings

from protocol.messages import Carries
from protocol.schedule import Ending, Leg
from strategies.routing.planner import Assignment, ModelRef, Plan, Planner

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


def make_planner(hospitals: int = 6, **changes: Any) -> Planner:
    arguments = {
        "last_leg": 10**6,
        "start": (Carries.AGGREGATE, ModelRef("first")),
        "permutation": "uniform",
        "fraction": 1.0,
        "route_seed": b"route",
    }
    return Planner(hospitals=hospitals, **arguments | changes)


def finish(planner: Planner, plan: Plan, silent: Collection[int] = ()) -> dict[int, str]:
    """End a leg: all who were asked answer, but for the silent ones."""
    asked = [
        assignment.hospital for assignment in plan.assignments if assignment.hospital not in silent
    ]
    answers = {hospital: f"model of {hospital}, leg {plan.leg.number}" for hospital in asked}
    if plan.leg.ending is Ending.HAND_OVER:
        planner.handed_over(
            plan, {h: ModelRef(name, plan.leg.number) for h, name in answers.items()}
        )
    else:
        planner.aggregated(plan, answers, ModelRef(f"aggregate of leg {plan.leg.number}"))
    return answers


def run(planner: Planner, legs: Iterable[Leg], silent: Collection[int] = ()) -> list[Plan]:
    plans = []
    for leg in legs:
        plans.append(planner.plan(leg, range(planner.hospitals)))
        finish(planner, plans[-1], silent)
    return plans


def by_hospital(plan: Plan) -> dict[int, Assignment]:
    return {assignment.hospital: assignment for assignment in plan.assignments}
