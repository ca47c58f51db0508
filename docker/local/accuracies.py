"""What a federation has learned, beside what each hospital learns alone."""

from dataclasses import dataclass

MINIMUM = 0.8  # ten classes: guessing gives 0.1, and the local federation's settings reach 0.9


class TooLow(Exception):
    """A federation has not learned what it should."""


@dataclass(frozen=True)
class Accuracies:
    """Accuracies on each hospital's held-out examples, by hospital.

    `alone`: of the model that it trained alone; `aggregate`: of the federation's final aggregate.
    """

    alone: dict[str, float]
    aggregate: dict[str, float]

    def check(self) -> None:
        """Raise TooLow if the aggregate's mean accuracy is below the minimum."""
        if (reached := mean(self.aggregate)) < MINIMUM:
            raise TooLow(
                f"the aggregate's accuracy is {percent(reached)}, expected at least "
                f"{percent(MINIMUM)}: run `KEEP=1 make federation` and look at the containers' logs"
            )

    def table(self) -> str:
        """Return a row for each kind of model and a column for each hospital."""
        rows = {
            "each hospital's own model, trained alone": self.alone,
            "FedDC's aggregate": self.aggregate,
        }
        lines = [_row("accuracy on held-out examples", [*self.aggregate, "mean"])]
        for label, values in rows.items():
            each = [values[name] for name in self.aggregate]
            lines.append(_row(label, [percent(value) for value in (*each, mean(values))]))
        return "\n".join(lines)


def mean(values: dict[str, float]) -> float:
    return sum(values.values()) / len(values)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _row(label: str, cells: list[str]) -> str:
    return f"{label:<42}" + "".join(f"{cell:>9}" for cell in cells)
