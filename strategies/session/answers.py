"""A leg's answers: asking for them, which of them can be used, and why the others can't.

Models go to the spool as they arrive: together they may be larger than memory.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from logging import WARNING

import numpy as np

from operation.flower.logger import log
from protocol.messages import Masked, Refusal, RefusalCode, Trained
from protocol.model_bytes import ModelBytesError, ModelState, Wire
from protocol.model_size import Layout, ModelSize, layout_of, model_size, optimizer_layouts
from protocol.schedule import Ending
from protocol.sealing import envelope
from protocol.secure_sum.total import LastAggregate
from protocol.secure_sum.vector import Mean
from strategies.identifiers import HospitalName, Position
from strategies.routing.planner import ModelRef, Plan

from .exchange import NOT_CONNECTED, Answer, Outgoing
from .members import Members
from .quorum import ExperimentFailed, QuorumPause, quorum_problem
from .sealed_study import SealedStudy
from .secure.secure_trips import SecureSum
from .storage.spool import Spool

# The model is whole, but not for this recipient: it can go to another.
_DECLINED = {RefusalCode.TOO_MANY_TO_ONE, RefusalCode.UNKNOWN_RECIPIENT}
# Asked again, the hospital would refuse again: this chain ends here.
_BROKEN = {
    RefusalCode.ENVELOPE_REFUSED,
    RefusalCode.MODEL_MISMATCH,
    RefusalCode.NOT_FINITE,
    RefusalCode.REPLAYED,
    RefusalCode.AGAINST_SCHEDULE,
    RefusalCode.AGAINST_POLICY,
    RefusalCode.OLD_LEG,
    RefusalCode.CONFLICTING_REQUEST,
}
# The hospital has answered later legs than the journal knows of, or others in their place.
_AHEAD = {RefusalCode.OLD_LEG, RefusalCode.CONFLICTING_REQUEST}


@dataclass(frozen=True)
class Expected:
    """What a model must be like to be aggregated, and whether a handed-over one is sealed."""

    model: ModelState
    wire: Wire
    sealed: bool
    names_aggregate: bool  # handed-over models come with the name of the sender's last aggregate

    @cached_property
    def size(self) -> ModelSize:
        """The exact size of a model that is sent for aggregation."""
        return model_size(*self._layouts, {}, wire=self.wire)

    @cached_property
    def hand_over_lengths(self) -> frozenset[int]:
        """The lengths that a handed-over model can have: one for each kind of optimiser state."""
        parameters, buffers = self._layouts
        overhead = envelope.OVERHEAD if self.sealed else 0
        overhead += LastAggregate.BYTES if self.names_aggregate else 0
        return frozenset(
            model_size(parameters, buffers, optimizer, wire=self.wire).total + overhead
            for optimizer in optimizer_layouts(parameters)
        )

    @property
    def _layouts(self) -> tuple[Layout, Layout]:
        return layout_of(self.model.parameters), layout_of(self.model.buffers)


class LegAnswers:
    """The outcome of one leg's requests, by the hospitals' position.

    A model sent for aggregation must have the expected tensors, all finite, in the agreed number
    format; the coordinator does not look into a handed-over one. Of a `secure_sum` only the sum of
    the models is kept.
    """

    def __init__(
        self,
        plan: Plan,
        members: Members,
        expected: Expected,
        spool: Spool,
        secure_sum: SecureSum[Mean] | None = None,
    ) -> None:
        self.trained: dict[Position, Trained | Masked] = {}  # without their models
        self._secure_sum = secure_sum
        self.models: dict[Position, ModelRef] = {}
        self.missing = absent(plan)
        self.declined: set[Position] = set()
        self.broken: set[Position] = set()
        self.ahead_of_journal: set[Position] = set()
        self._answers: dict[HospitalName, Answer] = {}
        self._members = members
        self._expected = expected
        self._spool = spool
        self._positions = dict(zip(members.names, members.positions, strict=True))
        self._legs = {assignment.hospital: assignment.leg for assignment in plan.assignments}
        self._plan, self._ending = plan, plan.leg.ending

    def accept(self, name: HospitalName, answer: Answer) -> None:
        """Check an answer as it arrives; its model goes to the spool."""
        hospital = self._positions[name]
        problem = self._problem(hospital, answer)
        reply = answer.reply
        self.missing.pop(hospital, None)
        if problem:
            self.missing[hospital] = problem
        elif isinstance(reply, Trained):
            is_hand_over = self._ending is Ending.HAND_OVER
            kind, sealed_in = ("envelope", reply.leg) if is_hand_over else ("model", None)
            self.models[hospital] = ModelRef(f"{kind}-{reply.leg}-{hospital}", sealed_in)
            self._spool.put(self.models[hospital].name, reply.payload)
            self.trained[hospital] = reply.model_copy(update={"payload": b""})
        elif isinstance(reply, Masked):
            self.trained[hospital] = reply.model_copy(update={"payload": b""})
        if isinstance(reply, Refusal):
            self.declined |= {hospital} if reply.code in _DECLINED else set()
            self.broken |= {hospital} if reply.code in _BROKEN else set()
            self.ahead_of_journal |= {hospital} if reply.code in _AHEAD else set()
        light = None if reply is None else reply.model_copy(update={"payload": b""})
        self._answers[name] = replace(answer, reply=light)

    def collect(
        self,
        requests: Mapping[HospitalName, Outgoing],
        study: SealedStudy,
        *,
        least: int,
        timeout: float,
    ) -> None:
        """Send the requests and accept the answers; wait while they are too few."""
        members, leg = self._members, self._plan.leg

        def problem() -> str:
            return quorum_problem(
                self._plan, members, self.missing, quorum=study.quorum, least=least
            )

        def report(hospitals: list[HospitalName], seconds: float) -> None:
            who = ", ".join(hospitals)
            log(WARNING, "leg %d: waiting for %s since %.0f s", leg.number, who, seconds)
            study.observer.unanswered(leg, hospitals, seconds)

        pause = QuorumPause(leg, study.quorum_wait, study.observer, study.clock)
        while True:
            for name, answer in members.ask(
                requests,
                timeout=timeout,
                group=f"leg-{leg.number}",
                enough=lambda: not problem(),
                on_unanswered=report,
            ):
                self.accept(name, answer)
            if not problem():
                break
            if self.ahead_of_journal:
                raise ExperimentFailed(
                    f"{problem()}; they have answered later legs than this journal knows of, as "
                    "after a backup: it can't be resumed, but a new experiment can start from its "
                    "last aggregate"
                )
            pause.wait(problem())
            timeout = min(timeout, pause.seconds_left)
            missing = {members.names[hospital] for hospital in self.missing}
            requests = {name: request for name, request in requests.items() if name in missing}
            members.present()
        if self.missing:
            log(WARNING, "leg %d: missing %s", leg.number, members.with_reasons(self.missing))

    def restore(self, survivors: Collection[str]) -> None:
        """Take the survivors of a secure sum as answered, in a run that is resumed after it."""
        for hospital, leg in self._legs.items():
            if self._members.names[hospital] in survivors:
                self.trained[hospital] = Masked(leg=leg)
                # When they answered, and how long it took, is not known any more.
                self._answers[self._members.names[hospital]] = Answer(Masked(leg=leg), "", 0, 0, 0)
            else:
                self.missing[hospital] = "did not answer in time"

    @property
    def by_name(self) -> dict[HospitalName, Answer]:
        """Return the answers without their models, in roster order."""
        return {n: self._answers[n] for n in self._members.names if n in self._answers}

    def _problem(self, hospital: Position, answer: Answer) -> str:
        reply = answer.reply
        if self._secure_sum is not None:
            if not isinstance(reply, Masked) or reply.leg != self._legs[hospital]:
                return answer.problem or "unexpected reply type"
            return self._secure_sum.accept(self._members.names[hospital], reply)
        if not isinstance(reply, Trained) or reply.leg != self._legs[hospital]:
            return answer.problem or "unexpected reply type"
        if self._ending is Ending.HAND_OVER:
            if reply.sealed != self._expected.sealed:
                return "did not seal its model"
            lengths = self._expected.hand_over_lengths
            is_possible = len(reply.payload) in lengths
            return "" if is_possible else f"sent {len(reply.payload)} bytes, not one of its models"
        return _difference(reply.payload, self._expected)


def absent(plan: Plan) -> dict[Position, str]:
    """Return the drawn hospitals that are not connected, with that as the reason."""
    return {h: NOT_CONNECTED.problem for h in plan.drawn if h not in plan.cohort}


def _difference(payload: bytes, expected: Expected) -> str:
    try:
        expected.size.check(payload)
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
