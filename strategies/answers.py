"""Which answers of a leg can be used, and why the others can't."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from protocol.messages import Trained
from protocol.model_bytes import ModelBytesError, ModelState, Wire

from .exchange import Answer
from .members import Members
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
