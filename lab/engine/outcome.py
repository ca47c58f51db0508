"""What a run of the engine leaves behind."""

from dataclasses import asdict, dataclass, field
from typing import Any

from learning.metrics import Metrics
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg

from .training import LegFigures, Way


@dataclass(frozen=True)
class Evaluation:
    """An aggregate on the test set, and what had been sent until then."""

    round: int
    aggregations: int
    messages: int
    figures: Metrics


@dataclass
class History:
    """How a run went.

    `training` has for each leg the rounds done and the hospitals' mean loss and accuracy on their
    batches; `messages` counts models sent, in hand-overs and for aggregation; `clients` judges each
    hospital's own model before the last aggregation. `held_out` and `clients_held_out` are the last
    aggregate's and these models' figures on what the hospitals held out, if that was asked for.
    """

    training: list[tuple[int, float, float]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    clients: list[Metrics] = field(default_factory=list)
    held_out: Metrics | None = None
    clients_held_out: list[Metrics] = field(default_factory=list)
    hand_overs: int = 0
    aggregations: int = 0
    messages: int = 0

    def trained(self, leg: Leg, models: int, figures: LegFigures) -> None:
        """Note a leg."""
        self.training.append(
            (leg.last_round + 1, float(figures.losses.mean()), float(figures.accuracies.mean()))
        )
        self.messages += models
        if leg.ending is Ending.HAND_OVER:
            self.hand_overs += 1
        else:
            self.aggregations += 1

    def latest(self) -> tuple[float, float]:
        """Return the last leg's mean loss and accuracy."""
        _, loss, accuracy = self.training[-1]
        return loss, accuracy

    @property
    def test_accuracy(self) -> float | None:
        return self.evaluations[-1].figures.accuracy if self.evaluations else None

    def to_state(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_state(state: dict[str, Any]) -> "History":
        return History(
            **state
            | {
                "training": [tuple(entry) for entry in state["training"]],
                "evaluations": [
                    Evaluation(**entry | {"figures": Metrics(**entry["figures"])})
                    for entry in state["evaluations"]
                ],
                "clients": [Metrics(**entry) for entry in state["clients"]],
                "held_out": Metrics(**state["held_out"]) if state["held_out"] else None,
                "clients_held_out": [Metrics(**entry) for entry in state["clients_held_out"]],
            }
        )


@dataclass(frozen=True)
class Outcome:
    """A run's result; `complete` is false when it was stopped, `model` then the last aggregate."""

    model: ModelState
    history: History
    complete: bool
    way: Way
    seconds: float
    client_rounds_per_s: float

    @property
    def final(self) -> Metrics | None:
        """The last aggregate's figures on the test set."""
        return self.history.evaluations[-1].figures if self.history.evaluations else None
