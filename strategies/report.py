"""What FedDC tells whoever watches it: one report per leg, and calls at the turning points."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.model_bytes import ModelState

from .exchange import Answer
from .schedule import Leg


@dataclass(frozen=True)
class LegReport:
    """How one leg went. Hospitals are named; `missing` gives the reason for each.

    `lost_chains` counts the models that aggregations have closed unaggregated, so far.
    """

    leg: Leg
    asked: tuple[str, ...]
    answers: Mapping[str, Answer]
    missing: Mapping[str, str]
    parked: tuple[str, ...]
    seconds: float
    lost_chains: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def answered(self) -> tuple[str, ...]:
        return tuple(name for name in self.answers if name not in self.missing)


class Observer:
    """Follows an experiment; every method may be left as it is."""

    def started(self, experiment: str, hospitals: Mapping[str, int | None], legs: int) -> None:
        """The hospitals (name → examples) have agreed; the first leg follows."""

    def received(self, leg: Leg, hospital: str, model: ModelState) -> None:
        """A hospital's own model came in for aggregation, readable by the coordinator."""

    def leg_ended(self, report: LegReport) -> None:
        """A leg is complete, and aggregated if that is how it ends."""

    def aggregated(self, leg: Leg, model: ModelState) -> None:
        """There is a new aggregate."""

    def closed(self, answers: Mapping[str, Answer]) -> None:
        """The final model was delivered; the answers hold the hospitals' own evaluation."""
