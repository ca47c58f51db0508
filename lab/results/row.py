"""One row of the results: a method in a variant."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.experiments import ExperimentError
from lab.results.statistics import Spread

FORMAT = "feddc-results-3"
_SPREADS = (
    *("aggregate", "balanced", "clients", "clients_balanced", "train"),
    *("best", "auc", "sensitivity", "specificity"),
)


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
    test_size: int
    pool_size: int
    overlap: float
    """See `Sizes`."""

    epsilon: float | Literal["unbounded"] | None = None
    """What a patient, or a hospital, spends over the run; None without a unit."""
    delta: float = 1e-5
    """The δ of `epsilon`; results that do not say it were computed with this one."""
    best: Spread | None = None
    """Test accuracy in each seed's best round, chosen on validation data."""
    best_rounds: list[int] = field(default_factory=list)
    auc: Spread | None = None
    sensitivity: Spread | None = None
    specificity: Spread | None = None
    curve: list[tuple[int, list[float]]] = field(default_factory=list)
    """Rounds, and the aggregate's accuracy of each seed as it is judged."""

    @property
    def headline(self) -> Spread | None:
        """The accuracy that the method is compared by."""
        return self.clients if self.judged_by == "clients" else self.aggregate


def rows_of(results: dict[str, Any]) -> list[Row]:
    """Return the rows of a results.json."""
    if results["format"] != FORMAT:
        name = results["experiment"]
        raise ExperimentError(
            f"results of {name} have the format {results['format']!r} of another version: run "
            f"`feddc lab run {name}` again"
        )
    return [row_from_json(values) for values in results["rows"]]


def name_of(rows: Iterable[Row], method: str) -> str:
    """Return a method's label; a period that differs between variants is shown as d or b."""
    labels = list(dict.fromkeys(row.label for row in rows if row.method == method))
    numbers = [re.findall(r"\d+", label) for label in labels]
    letters = {1: "b", 2: "db"}.get(len(numbers[0]), "")
    if len({re.sub(r"\d+", "#", label) for label in labels}) > 1 or not letters:
        return labels[0] if len(labels) == 1 else method
    numerals = iter(
        values[0] if len(set(values)) == 1 else letter
        for values, letter in zip(zip(*numbers, strict=True), letters, strict=True)
    )
    return re.sub(r"\d+", lambda _: next(numerals), labels[0])


def row_from_json(values: dict[str, Any]) -> Row:
    """Read a row back."""
    return Row(**values | {name: spread_from_json(values.get(name)) for name in _SPREADS})


def spread_from_json(values: dict[str, Any] | None) -> Spread | None:
    if values is None:
        return None
    interval = tuple(values["interval"]) if values["interval"] else None
    return Spread(values["mean"], values["max_deviation"], tuple(values["values"]), interval)
