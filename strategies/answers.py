"""Which answers of a leg can be used, why the others can't, and whether they are enough."""

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from protocol.messages import Trained
from protocol.model_bytes import ModelBytesError, ModelState, Wire

from .exchange import Answer
from .members import Members, QuorumNotReached
from .planner import Plan
from .schedule import Ending

T = TypeVar("T")


def sort_answers(
    plan: Plan[T], answers: Mapping[str, Answer], members: Members, like: ModelState, wire: Wire
) -> tuple[dict[int, Trained], dict[int, str]]:
    """Return what each hospital trained and why others are missing, by position in the roster.

    A model sent for aggregation must have the tensors of `like`, all finite, in numbers as agreed
    (`wire`); a handed-over one is not the coordinator's to look into.
    """
    trained: dict[int, Trained] = {}
    missing = absent(plan)
    for task in plan.tasks:
        answer = answers[members.names[task.hospital]]
        reply = answer.reply
        if not isinstance(reply, Trained) or reply.leg != task.leg:
            missing[task.hospital] = answer.problem or "answered something else"
        elif plan.leg.ending is Ending.AGGREGATION and (
            problem := _problem(reply.payload, like, wire)
        ):
            missing[task.hospital] = problem
        else:
            trained[task.hospital] = reply
    return trained, missing


def absent(plan: Plan[T]) -> dict[int, str]:
    """Return who was drawn but is not there to be asked."""
    return {hospital: "not connected" for hospital in plan.drawn if hospital not in plan.cohort}


def check_quorum(
    plan: Plan[T], members: Members, missing: Mapping[int, str], *, quorum: float, least: int
) -> None:
    """Refuse a leg with fewer hospitals than the quorum or than `least`.

    Asked before anybody trains, about who is not connected, and again when all have answered.
    """
    there = set(plan.drawn) - set(missing)
    if plan.leg.ending is Ending.AGGREGATION:
        # Here only models count: who has none, because a chain is parked, adds nothing.
        idle = there - {task.hospital for task in plan.tasks}
        missing = dict(missing) | dict.fromkeys(idle, "has no model")
        there -= idle
    needed = max(least, math.ceil(quorum * len(plan.drawn)))
    if len(there) < needed:
        raise QuorumNotReached(
            f"leg {plan.leg.number}: {len(there)} of {len(plan.drawn)} hospitals answered, "
            f"{needed} are needed; missing: {with_reasons(members, missing)}"
        )


def with_reasons(members: Members, missing: Mapping[int, str]) -> str:
    """Name those who are missing, each with the reason."""
    return ", ".join(f"{members.names[h]} ({why})" for h, why in sorted(missing.items()))


def _problem(payload: bytes, like: ModelState, wire: Wire) -> str:
    try:
        model = ModelState.from_bytes(payload, wire=wire)
    except ModelBytesError as error:
        return f"sent no model: {error}"
    for expected, sent in ((like.parameters, model.parameters), (like.buffers, model.buffers)):
        if set(expected) != set(sent):
            return "sent a model with other tensors"
        for name, array in expected.items():
            if array.shape != sent[name].shape or array.dtype != sent[name].dtype:
                return f"sent {name} in another shape or type"
            if not np.isfinite(sent[name]).all():
                return f"sent values that are not finite in {name}: its training diverged"
    return ""
