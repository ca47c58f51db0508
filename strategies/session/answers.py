"""Which answers of a leg can be used, why the others can't, and whether they are enough.

Models are put into the spool as they arrive: together they may be larger than memory.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from protocol.messages import Refusal, RefusalCode, Trained
from protocol.model_bytes import ModelBytesError, ModelState, Wire
from protocol.schedule import Ending
from strategies.routing.planner import Plan

from .exchange import Answer
from .members import Members
from .spool import Spool

T = TypeVar("T")

# The model is whole, but not for this recipient: it can go to another.
_DECLINED = {RefusalCode.TOO_MANY_TO_ONE, RefusalCode.UNKNOWN_RECIPIENT}
# Asked again, the hospital would refuse again: this chain has come to its end.
_BROKEN = {
    RefusalCode.ENVELOPE_REFUSED,
    RefusalCode.MODEL_MISMATCH,
    RefusalCode.NOT_FINITE,
    RefusalCode.REPLAYED,
    RefusalCode.ROUNDS_REFUSED,
    RefusalCode.AGAINST_POLICY,
    RefusalCode.OLD_LEG,
    RefusalCode.CONFLICTING_REQUEST,
}
# The hospital has answered later legs than the coordinator remembers, or others in their place.
_AHEAD = {RefusalCode.OLD_LEG, RefusalCode.CONFLICTING_REQUEST}


@dataclass(frozen=True)
class Expected:
    """What a model must be like to be aggregated, and whether a handed-over one is sealed."""

    model: ModelState
    wire: Wire
    sealed: bool


class LegAnswers:
    """What came of one leg's requests, by the hospitals' position in the roster.

    A model sent for aggregation must have the tensors expected, all finite, in numbers as agreed; a
    handed-over one is not the coordinator's to look into.
    """

    def __init__(self, plan: Plan[T], members: Members, expected: Expected, spool: Spool) -> None:
        self.trained: dict[int, Trained] = {}  # without their models
        self.models: dict[int, str] = {}  # names in the spool
        self.missing = absent(plan)
        self.declined: set[int] = set()
        self.broken: set[int] = set()
        self.ahead: set[int] = set()
        self._by_name: dict[str, Answer] = {}
        self._expected = expected
        self._spool = spool
        self._positions = {name: position for position, name in enumerate(members.names)}
        self._legs = {task.hospital: task.leg for task in plan.tasks}
        self._ending = plan.leg.ending

    def take(self, name: str, answer: Answer) -> Answer:
        """Look at an answer as it arrives; return it without the model, which is in the spool."""
        hospital = self._positions[name]
        problem = self._problem(hospital, answer)
        reply = answer.reply
        self.missing.pop(hospital, None)
        if problem:
            self.missing[hospital] = problem
        elif isinstance(reply, Trained):
            kind = "envelope" if self._ending is Ending.HAND_OVER else "model"
            self.models[hospital] = f"{kind}-{reply.leg}-{hospital}"
            self._spool.put(self.models[hospital], reply.payload)
            self.trained[hospital] = reply.model_copy(update={"payload": b""})
        if isinstance(reply, Refusal):
            self.declined |= {hospital} if reply.code in _DECLINED else set()
            self.broken |= {hospital} if reply.code in _BROKEN else set()
            self.ahead |= {hospital} if reply.code in _AHEAD else set()
        light = None if reply is None else reply.model_copy(update={"payload": b""})
        self._by_name[name] = replace(answer, reply=light)
        return self._by_name[name]

    def in_order(self, members: Members) -> dict[str, Answer]:
        """Return the answers by name, in roster order."""
        return {name: self._by_name[name] for name in members.names if name in self._by_name}

    def _problem(self, hospital: int, answer: Answer) -> str:
        reply = answer.reply
        if not isinstance(reply, Trained) or reply.leg != self._legs[hospital]:
            return answer.problem or "answered something else"
        if self._ending is Ending.HAND_OVER:
            return "" if reply.sealed == self._expected.sealed else "did not seal its model"
        return _difference(reply.payload, self._expected)


def absent(plan: Plan[T]) -> dict[int, str]:
    """Return who was drawn but is not there to be asked."""
    return {hospital: "not connected" for hospital in plan.drawn if hospital not in plan.cohort}


def quorum_problem(
    plan: Plan[T], members: Members, missing: Mapping[int, str], *, quorum: float, least: int
) -> str:
    """Say why a leg has fewer hospitals than the quorum or than `least`; nothing if it has enough.

    Asked before anybody trains, about who is not connected, and again when all have answered.
    """
    there = set(plan.drawn) - set(missing)
    if plan.leg.ending is Ending.AGGREGATION:
        # Here only models count: who has none, because a chain is parked, adds nothing.
        idle = there - {task.hospital for task in plan.tasks}
        missing = dict(missing) | dict.fromkeys(idle, "has no model")
        there -= idle
    needed = max(least, math.ceil(quorum * len(plan.drawn)))
    if len(there) >= needed:
        return ""
    return (
        f"leg {plan.leg.number}: {len(there)} of {len(plan.drawn)} hospitals answered, "
        f"{needed} are needed; missing: {with_reasons(members, missing)}"
    )


def with_reasons(members: Members, missing: Mapping[int, str]) -> str:
    """Name those who are missing, each with the reason."""
    return ", ".join(f"{members.names[h]} ({why})" for h, why in sorted(missing.items()))


def _difference(payload: bytes, expected: Expected) -> str:
    try:
        model = ModelState.from_bytes(payload, wire=expected.wire)
    except ModelBytesError as error:
        return f"sent no model: {error}"
    like = expected.model
    for wanted, sent in ((like.parameters, model.parameters), (like.buffers, model.buffers)):
        if set(wanted) != set(sent):
            return "sent a model with other tensors"
        for name, array in wanted.items():
            if array.shape != sent[name].shape or array.dtype != sent[name].dtype:
                return f"sent {name} in another shape or type"
            if not np.isfinite(sent[name]).all():
                return f"sent values that are not finite in {name}: its training diverged"
    return ""
