"""The closing secure sum: figures of the final model on held-out examples, as totals.

It can fail without harm: the model is delivered with its first request, and again when the
experiment is closed. A resumed run sends the same bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from logging import INFO, WARNING
from typing import Any

from operation.flower.logger import log
from protocol.messages import EvaluateFinal, Masked
from protocol.secure_sum.held_out_totals import HeldOutForm, HeldOutTotals
from protocol.secure_sum.total import LastAggregate
from strategies.identifiers import HospitalName
from strategies.session.generation import Generation
from strategies.session.quorum import ExperimentFailed, QuorumPause
from strategies.session.signed_request import sign_with_model
from strategies.session.storage.spool import Spool

from .secure_trips import SecureSum


class ClosingFigures:
    """One secure sum of figures, before the keys are destroyed.

    `model` is the final model's name in the spool, and `final` what hospitals sign that they have
    evaluated, with the number of the last leg.
    """

    def __init__(
        self,
        generation: Generation,
        spool: Spool,
        *,
        model: str,
        final: LastAggregate,
        saved: Mapping[str, Any] | None,
    ) -> None:
        self._totals: HeldOutTotals | None = None
        self._generation, self._members = generation, generation.members
        self._spool, self._model, self._final = spool, model, final
        self._form = HeldOutForm(generation.descriptor.classes, members=len(generation.members))
        self._is_over = False
        self._cohort: tuple[str, ...] = ()
        self._sum: SecureSum[HeldOutTotals | None] | None = None
        if saved is not None:
            self._restore(saved)

    def collect(
        self, save: Callable[[], None], pause: QuorumPause, timeout: float
    ) -> HeldOutTotals | None:
        """Deliver the final model and return its figures, or None if too few take part.

        `save` persists the state.
        """
        if self._is_over:
            return self._totals
        try:
            self._totals = self._collect(save, pause, timeout)
        except ExperimentFailed as error:
            log(WARNING, "no figures of the final model: %s", error)
        self._is_over, self._sum = True, None
        save()
        return self._totals

    def _collect(
        self, save: Callable[[], None], pause: QuorumPause, timeout: float
    ) -> HeldOutTotals | None:
        members = self._members
        if not self._cohort:
            present = members.present()
            self._cohort = tuple(
                sorted(
                    members.names[position] for position in members.positions if position in present
                )
            )
        if self._sum is None:
            self._sum = self._new_sum()
            save()
        if not self._sum.survivors:
            self._ask(self._sum, timeout)
            save()
        totals, _ = self._sum.finish(save, lambda: pause, timeout)
        if totals is None:
            log(INFO, "too few hospitals disclose figures of the final model")
        return totals

    def _new_sum(self) -> SecureSum[HeldOutTotals | None]:
        if len(self._cohort) < (least := self._generation.threshold):
            raise ExperimentFailed(
                f"{len(self._cohort)} of {len(self._members)} hospitals are connected, {least} are "
                "needed"
            )
        leg = self._generation.secure_leg(self._final.leg + 1, self._cohort)
        return SecureSum(leg, self._form, self._members, self._spool, self._final.to_bytes())

    def _ask(self, secure_sum: SecureSum[HeldOutTotals | None], timeout: float) -> None:
        """Deliver the final model, and add the masked totals as they arrive."""
        leg = secure_sum.leg
        request = EvaluateFinal(experiment=leg.experiment, leg=leg.leg, cohort=leg.cohort)
        requests = {
            name: sign_with_model(request, name, self._members, self._spool, self._model)
            for name in map(HospitalName, leg.cohort)
        }
        missing = {}
        arrived = 0
        for name, answer in self._members.ask(requests, timeout=timeout, group=request.kind):
            problem = answer.problem or "unexpected reply type"
            if isinstance(answer.reply, Masked) and answer.reply.leg == leg.leg:
                problem = secure_sum.accept(name, answer.reply)
            arrived += not problem
            if problem:
                missing[name] = problem
        if arrived < leg.threshold:
            who = ", ".join(f"{name} ({why})" for name, why in missing.items())
            raise ExperimentFailed(
                f"{arrived} of {len(requests)} hospitals sent totals, {leg.threshold} are needed; "
                f"missing: {who}"
            )
        secure_sum.fix_survivors()

    # --- saved state ------------------------------------------------------------------------------

    @property
    def stored(self) -> set[str]:
        """The names in the spool that a resumed run needs."""
        return {self._model} | (self._sum.stored if self._sum else set())

    def to_state(self) -> dict[str, Any]:
        return {
            "is_over": self._is_over,
            "totals": self._totals and asdict(self._totals),
            "cohort": list(self._cohort),
            "sum": self._sum and self._sum.to_state(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._is_over, self._cohort = state["is_over"], tuple(state["cohort"])
        if totals := state["totals"]:
            counts = {key: tuple(totals[key]) for key in ("examples", "correct")}
            self._totals = HeldOutTotals(**totals | counts)
        if state["sum"] is not None:
            self._sum = self._new_sum()
            self._sum.restore(state["sum"])
