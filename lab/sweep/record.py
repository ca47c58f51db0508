"""The result of one trial, as saved on disk."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from learning.metrics import BinaryMetrics, Metrics

Point = tuple[int, int, int, float, float, float | None, float | None]
"""Rounds, aggregations and messages so far; accuracy and balanced accuracy on the test set, then on
the held-out data where there are some."""
TrainingPoint = tuple[int, float, float, float]
"""Rounds so far; accuracy on the batches: the hospitals' mean, lowest and highest."""


@dataclass(frozen=True)
class Record:
    """The metrics of a trial; `clients` are means over the hospitals' own models.

    `held_out` and `clients_held_out` are on validation data, `trained_on` on all hospitals'
    training data. `binary` are the last aggregate's figures on the test set where there are two
    classes. A diverged trial has a reason and no metrics.
    """

    variant: str
    method: str
    seed: int
    learning_rate: float
    status: Literal["done", "diverged"]
    reason: str = ""
    test: Metrics | None = None
    clients: Metrics | None = None
    held_out: Metrics | None = None
    clients_held_out: Metrics | None = None
    trained_on: Metrics | None = None
    binary: BinaryMetrics | None = None
    curve: list[Point] = field(default_factory=list)
    training: list[TrainingPoint] = field(default_factory=list)
    hand_overs: int = 0
    aggregations: int = 0
    messages: int = 0
    seconds: float = 0.0
    client_rounds: int = 0
    backend: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> "Record":
        names = ("test", "clients", "held_out", "clients_held_out", "trained_on")
        metrics = {name: Metrics(**values[name]) if values[name] else None for name in names}
        binary = values.get("binary")
        curves = {
            "binary": BinaryMetrics(**binary) if binary else None,
            "curve": [tuple(point) for point in values["curve"]],
            "training": [tuple(point) for point in values["training"]],
        }
        return Record(**values | metrics | curves)


def mean_metrics(metrics: list[Metrics]) -> Metrics | None:
    """Return the mean over hospitals; None if there are none."""
    if not metrics:
        return None
    return Metrics(
        *(
            sum(getattr(each, name) for each in metrics) / len(metrics)
            for name in ("loss", "accuracy", "balanced_accuracy")
        )
    )
