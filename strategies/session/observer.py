"""Progress events of an experiment: one report per leg, and calls at the turning points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.model_bytes import ModelState
from protocol.schedule import Leg
from protocol.secure_sum.held_out_totals import HeldOutTotals
from strategies.identifiers import HospitalName

from .exchange import Answer
from .storage.spool import StoredModel


@dataclass(frozen=True)
class LegReport:
    """How one leg went. Hospitals are named; `missing` gives the reason for each.

    `lost_chains` counts the models that were never aggregated, so far: closed by an aggregation
    while they waited, or refused for good. `missed_rounds` counts the rounds that models did not
    train because their hospital did not answer. `figures` are means over the hospitals of a secure
    sum, whose own ones nobody sees. `routes` has the chain, the hospital and the recipient (None:
    the aggregate) of every model that was trained: for the coordinator only.
    """

    leg: Leg
    asked: tuple[str, ...]
    answers: Mapping[HospitalName, Answer]
    missing: Mapping[str, str]
    parked: tuple[str, ...]
    seconds: float
    lost_chains: int = 0
    missed_rounds: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    routes: tuple[tuple[int, str, str | None], ...] = field(default=(), repr=False)

    @property
    def answered(self) -> tuple[str, ...]:
        return tuple(name for name in self.answers if name not in self.missing)


class Observer:
    """Receives an experiment's events; override the methods of interest."""

    def publishing(self, hospitals: Sequence[HospitalName]) -> None:
        """Of the members that now begin, these let their own figures be handed out."""

    def started(
        self, experiment: str, hospitals: Mapping[HospitalName, int | None], legs: int
    ) -> None:
        """The hospitals (name → examples) have agreed; the first leg follows."""

    def waiting_for_approval(self, hospitals: Mapping[HospitalName, str], fingerprint: str) -> None:
        """These hospitals can't begin yet, for the reason given; they approve this fingerprint."""

    def received(self, leg: Leg, hospital: str, model: StoredModel) -> None:
        """A hospital's own model came in for aggregation, readable by the coordinator."""

    def generation_began(
        self,
        number: int,
        hospitals: Mapping[HospitalName, int | None],
        staying_out: Mapping[str, str],
    ) -> None:
        """A new roster counts from now on, for all but those who stay out for the reason given."""

    def waiting(self, leg: Leg, problem: str) -> None:
        """The experiment pauses before or in a leg: there is no quorum, as the problem says."""

    def unanswered(self, leg: Leg, hospitals: Sequence[HospitalName], seconds: float) -> None:
        """These hospitals have not answered for so long; the leg goes on until its timeout."""

    def leg_ended(self, report: LegReport) -> None:
        """A leg is complete, and aggregated if that is how it ends."""

    def aggregated(self, leg: Leg, model: ModelState) -> None:
        """There is a new aggregate."""

    def to_state(self) -> Mapping[str, Any]:
        """Return what a resumed run's observer needs, for JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `to_state` returned when the resumed run last saved its state."""

    def closed(self, answers: Mapping[HospitalName, Answer], totals: HeldOutTotals | None) -> None:
        """The final model was delivered.

        `totals` are its figures on the hospitals' held-out examples, if a secure sum brought any.
        With plain averaging the answers hold the hospitals' own evaluation instead.
        """
