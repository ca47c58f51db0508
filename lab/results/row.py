"""One line of the results: a method in a variant."""

from dataclasses import dataclass
from typing import Any

from lab.results.statistics import Spread


@dataclass(frozen=True)
class Row:
    """One method in one variant; accuracies in per cent, over seeds."""

    variant: str
    x: float | None
    method: str
    label: str
    judged_by: str
    paper: float | None
    paper_deviation: float | None
    settings: dict[str, Any]
    learning_rates: list[float]
    candidates: dict[str, float | None]
    aggregate: Spread | None
    balanced: Spread | None
    clients: Spread | None
    clients_balanced: Spread | None
    train: Spread | None
    hand_overs: int
    aggregations: int
    messages: int
    client_rounds: int
    seconds: float
    diverged: int

    @property
    def headline(self) -> Spread | None:
        """What the method is judged by."""
        return self.clients if self.judged_by == "clients" else self.aggregate


def row_from_json(values: dict[str, Any]) -> Row:
    """Read a row back."""
    names = ("aggregate", "balanced", "clients", "clients_balanced", "train")
    return Row(**values | {name: spread_from_json(values[name]) for name in names})


def spread_from_json(values: dict[str, Any] | None) -> Spread | None:
    if values is None:
        return None
    interval = tuple(values["interval"]) if values["interval"] else None
    return Spread(values["mean"], values["max_deviation"], tuple(values["values"]), interval)
