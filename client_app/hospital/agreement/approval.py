"""Whether an experiment may begin here: the operator's decision, and the number allowed."""

from dataclasses import dataclass

from client_app.hospital.refusal import Refused
from client_app.state.decisions import Decisions
from client_app.state.experiment_ledger import ExperimentLedger, LedgerEntry, Terms
from protocol.approval import approval_fingerprint
from protocol.descriptor import Descriptor
from protocol.messages import RefusalCode
from protocol.study.roster import Roster

from .policy import Policy


@dataclass(frozen=True)
class ApprovalCheck:
    """Decides on set-ups that have passed every other check."""

    ledger: ExperimentLedger
    decisions: Decisions
    policy: Policy
    roster: Roster

    def begin(self, descriptor: Descriptor, terms: Terms) -> None:
        """Record a new experiment as agreed to, or refuse it.

        One that needs an approval is stored for the operator to see. A coordinator can't displace
        what waits, and what it makes wait is limited in number and size.
        """
        fingerprint = approval_fingerprint(descriptor, self.roster)
        decision = self.decisions.get(fingerprint)
        if decision == "rejected":
            raise self._rejected(descriptor.experiment, fingerprint)
        entry = LedgerEntry(
            experiment=descriptor.experiment,
            fingerprint=fingerprint,
            roster=self.roster.fingerprint,
            state="agreed",
            terms=terms,
        )
        if self.policy.approval == "automatic" or decision == "approved":
            self._check_number(self._begun(but=fingerprint), "have begun")
            # Another descriptor under the same id can't be agreed to any more.
            kept = tuple(e for e in self.ledger.entries() if not _waits_as(e, entry.experiment))
            self.ledger.keep(kept)
            self.ledger.put(entry)
            return
        raise self._wait(entry.with_state("waiting"))

    def continue_under(self, roster: Roster, experiment: str) -> None:
        """Count an experiment that is under way for the roster of its new generation."""
        if entry := self.ledger.agreed(experiment):
            self.ledger.put(entry.model_copy(update={"roster": roster.fingerprint}))

    def check_not_withdrawn(self, experiment: str) -> None:
        """Refuse requests of an experiment that the operator has rejected while it runs."""
        entry = self.ledger.agreed(experiment)
        if entry is not None and self.decisions.get(entry.fingerprint) == "rejected":
            raise Refused(
                RefusalCode.REJECTED, f"the operator has rejected {experiment}", expected=True
            )

    def _wait(self, entry: LedgerEntry) -> Refused:
        waiting = self._waiting()
        is_known = any(known.fingerprint == entry.fingerprint for known in waiting)
        if not is_known:
            number = self._begun(but=entry.fingerprint) + len(waiting)
            self._check_number(number, "have begun or wait for approval")
        name = entry.experiment
        return Refused(
            RefusalCode.WAITING_FOR_APPROVAL,
            f"{name} needs your approval: review it with `feddc hospital experiments`, then "
            f"`feddc hospital approve {name}` or `feddc hospital reject {name}`",
            record=(lambda: None) if is_known else (lambda: self._store_waiting(entry)),
            expected=is_known,
        )

    def _store_waiting(self, entry: LedgerEntry) -> None:
        # What waited under an earlier roster is stored again when it is asked for again.
        kept = (e for e in self.ledger.entries() if e.state != "waiting" or self._is_current(e))
        self.ledger.keep(tuple(kept))
        self.ledger.put(entry)

    def _rejected(self, experiment: str, fingerprint: str) -> Refused:
        known = {entry.fingerprint: entry for entry in self.ledger.entries()}.get(fingerprint)
        is_new = known is not None and known.state != "rejected"

        def record() -> None:
            if known is not None and is_new:
                self.ledger.put(known.with_state("rejected"))

        return Refused(
            RefusalCode.REJECTED,
            f"the operator has rejected {experiment}",
            record=record,
            expected=not is_new,
        )

    def _begun(self, *, but: str) -> int:
        others = (entry for entry in self.ledger.entries() if entry.fingerprint != but)
        begun = (entry for entry in others if entry.state in ("agreed", "closed"))
        return sum(self._is_current(entry) for entry in begun)

    def _waiting(self) -> list[LedgerEntry]:
        return [
            entry
            for entry in self.ledger.entries()
            if entry.state == "waiting"
            and self._is_current(entry)
            and self.decisions.get(entry.fingerprint) != "rejected"
        ]

    def _check_number(self, number: int, what: str) -> None:
        most = self.policy.maximum_experiments
        if number >= most:
            raise Refused(
                RefusalCode.AGAINST_POLICY,
                f"{number} experiments under this roster {what}; maximum-experiments is {most}",
            )

    def _is_current(self, entry: LedgerEntry) -> bool:
        return entry.roster == self.roster.fingerprint


def _waits_as(entry: LedgerEntry, experiment: str) -> bool:
    return entry.state == "waiting" and entry.experiment == experiment
