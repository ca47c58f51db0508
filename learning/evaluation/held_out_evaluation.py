"""A model's figures on held-out examples: counts first, and nothing that they can't support."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from .intervals import Estimate, area_under_curve, mean_of, proportion

LEAST_FOR_AUC = 5  # of each class; with fewer the interval says nothing


@dataclass(frozen=True)
class ClassFigures:
    """One class against all others: of two classes, the second is the positive one."""

    name: str
    examples: int
    sensitivity: Estimate | None
    specificity: Estimate | None
    auc: Estimate | None
    predicted_minus_observed: float
    """The mean predicted probability minus the class's frequency: 0 if calibrated on average."""
    predicted_minus_observed_sd: float
    """Its standard deviation if every predicted probability were right: what chance explains."""


@dataclass(frozen=True)
class HeldOutEvaluation:
    """The figures of one model. `notes` say what was not computed, and why.

    There is no expected calibration error: perfectly calibrated predictions have one of .2 with
    twenty examples.
    """

    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    """Examples by true class (row) and predicted class (column)."""
    accuracy: Estimate | None
    balanced_accuracy: Estimate | None
    brier: float | None
    by_class: tuple[ClassFigures, ...]
    notes: tuple[str, ...]

    @property
    def examples(self) -> int:
        return sum(map(sum, self.confusion))

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {"examples": self.examples} | asdict(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "HeldOutEvaluation":
        """Read what `as_dict` has returned; ValueError if it is anything else."""
        return _EVALUATION.validate_python(
            {key: value for key, value in content.items() if key != "examples"}
        )


_EVALUATION = TypeAdapter(HeldOutEvaluation)


def evaluate_predictions(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], classes: Sequence[str]
) -> HeldOutEvaluation:
    """Compare predicted probabilities (examples, classes) with the true classes."""
    if probabilities.shape != (len(labels), len(classes)):
        raise ValueError(
            f"{probabilities.shape} probabilities for {len(labels)} labels, {len(classes)} classes"
        )
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(confusion, (labels, predicted_classes(probabilities)), 1)
    counts = confusion.sum(axis=1)
    recalls = [
        proportion(int(confusion[k, k]), int(counts[k])) for k in range(len(classes)) if counts[k]
    ]
    shown = range(1, 2) if len(classes) == 2 else range(len(classes))
    complete = len(recalls) == len(classes)
    return HeldOutEvaluation(
        tuple(classes),
        tuple(tuple(int(count) for count in row) for row in confusion),
        proportion(int(np.trace(confusion)), len(labels)) if len(labels) else None,
        mean_of(recalls) if complete else None,
        _brier(probabilities, labels) if len(labels) else None,
        tuple(_one_class(k, classes[k], probabilities, labels, confusion) for k in shown)
        if len(labels)
        else (),
        tuple(_notes(classes, counts, shown)),
    )


def predicted_classes(probabilities: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the most probable class of each example; of two equal ones the first."""
    best: NDArray[np.intp] = probabilities.argmax(axis=1)
    return best


def _one_class(
    k: int,
    name: str,
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    confusion: NDArray[np.int64],
) -> ClassFigures:
    positive, predicted = labels == k, probabilities[:, k]
    of_class, found = int(positive.sum()), int(confusion[k, k])
    others = len(labels) - of_class
    mistaken = int(confusion[:, k].sum()) - found
    enough = min(of_class, others) >= LEAST_FOR_AUC
    return ClassFigures(
        name,
        of_class,
        proportion(found, of_class) if of_class else None,
        proportion(others - mistaken, others) if others else None,
        area_under_curve(predicted, positive) if enough else None,
        float((predicted - positive).mean()),
        math.sqrt(float((predicted * (1 - predicted)).sum())) / len(labels),
    )


def _brier(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Brier's score: of two classes the squared error of one, of more that of all, added up."""
    errors = (probabilities - np.eye(probabilities.shape[1])[labels]) ** 2
    total = float(errors.sum(axis=1).mean())
    return total / 2 if probabilities.shape[1] == 2 else total


def _notes(classes: Sequence[str], counts: NDArray[np.int64], shown: range) -> list[str]:
    """Say which figures are missing, with the counts that are too small for them."""
    total = int(counts.sum())
    if not total:
        return ["nothing is computed: no example is held out; raise test-fraction"]
    notes = []
    absent = [name for name, count in zip(classes, counts, strict=True) if not count]
    if absent:
        notes.append(
            f"no balanced accuracy: of {total} held-out examples none is {' or '.join(absent)}"
        )
    for k in shown:
        least = min(int(counts[k]), total - int(counts[k]))
        if least < LEAST_FOR_AUC:
            notes.append(
                f"no AUC of {classes[k]}: {int(counts[k])} held-out examples are {classes[k]} and "
                f"{total - int(counts[k])} are not; {LEAST_FOR_AUC} of each are needed"
            )
    return notes
