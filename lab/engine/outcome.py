"""The result of an engine run: the model, the history of evaluations, the speed."""

from dataclasses import asdict, dataclass, field
from typing import Any

from learning.metrics import Metrics
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg

from .training_interface import Backend, LegMetrics


@dataclass(frozen=True)
class AggregateEvaluation:
    """Metrics of one aggregate on the test set, and the communication up to then."""

    round: int
    aggregations: int
    messages: int
    metrics: Metrics
    held_out: Metrics | None = None


@dataclass
class History:
    """The course of a run.

    `training` holds for each leg the rounds done, the hospitals' mean loss and accuracy on their
    batches, and the lowest and highest accuracy of a hospital. `messages` counts models sent, in
    hand-overs and for aggregation. `clients` are the metrics of each hospital's own model before
    the last aggregation. `held_out` and `clients_held_out` are the same for the held-out data,
    where the caller asked for them.
    """

    training: list[tuple[int, float, float, float, float]] = field(default_factory=list)
    evaluations: list[AggregateEvaluation] = field(default_factory=list)
    clients: list[Metrics] = field(default_factory=list)
    held_out: Metrics | None = None
    clients_held_out: list[Metrics] = field(default_factory=list)
    hand_overs: int = 0
    aggregations: int = 0
    messages: int = 0

    def trained(self, leg: Leg, models: int, metrics: LegMetrics) -> None:
        """Record a leg that was trained."""
        accuracies = metrics.accuracies
        figures = (metrics.losses.mean(), accuracies.mean(), *accuracies.aminmax())
        loss, accuracy, lowest, highest = (figure.item() for figure in figures)
        self.training.append((leg.last_round + 1, loss, accuracy, lowest, highest))
        self.messages += models
        if leg.ending is Ending.HAND_OVER:
            self.hand_overs += 1
        else:
            self.aggregations += 1

    def latest(self) -> tuple[float, float]:
        """Return the last leg's mean loss and accuracy."""
        return self.training[-1][1], self.training[-1][2]

    @property
    def test_accuracy(self) -> float | None:
        return self.evaluations[-1].metrics.accuracy if self.evaluations else None

    def to_state(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_state(state: dict[str, Any]) -> "History":
        return History(
            **state
            | {
                "training": [tuple(entry) for entry in state["training"]],
                "evaluations": [
                    AggregateEvaluation(
                        **entry
                        | {
                            "metrics": Metrics(**entry["metrics"]),
                            "held_out": _metrics(entry["held_out"]),
                        }
                    )
                    for entry in state["evaluations"]
                ],
                "clients": [Metrics(**entry) for entry in state["clients"]],
                "held_out": _metrics(state["held_out"]),
                "clients_held_out": [Metrics(**entry) for entry in state["clients_held_out"]],
            }
        )


def _metrics(values: dict[str, float] | None) -> Metrics | None:
    return Metrics(**values) if values else None


@dataclass(frozen=True)
class Outcome:
    """The result of a run. A stopped run is not `complete`; its model is the last aggregate."""

    model: ModelState
    history: History
    complete: bool
    backend: Backend
    seconds: float
    client_rounds_per_s: float

    @property
    def final(self) -> Metrics | None:
        """Metrics of the last aggregate on the test set."""
        return self.history.evaluations[-1].metrics if self.history.evaluations else None
