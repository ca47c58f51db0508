"""Labelled examples, and a data set made of a training pool and a test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

IN_BOTH = "in train/ and test/"  # why images are left out of train/
_SHOWN = 3
Indices = NDArray[np.integer[Any]] | Sequence[int]


class DataError(ValueError):
    """Data or a data setting is wrong; the message says what, where, and what to do.

    `problems` lists everything that was found; the message shows the first few.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        more = len(problems) - _SHOWN
        shown = "; ".join(problems[:_SHOWN])
        super().__init__(f"{shown}; and {more} more" if more > 0 else shown)


@dataclass(frozen=True, eq=False)
class Examples:
    """Features and labels, row by row."""

    features: NDArray[np.float32]
    """(n, *shape), standardised or scaled by the loader."""

    labels: NDArray[np.int64]
    """(n,), the position in the data set's classes."""

    groups: NDArray[np.int64] | None = None
    """Examples of the same group (one patient, near-duplicates) must stay together."""

    hospitals: NDArray[np.str_] | None = None
    """The hospital each example comes from, where it is known."""

    def __post_init__(self) -> None:
        columns = {"labels": self.labels, "groups": self.groups, "hospitals": self.hospitals}
        for name, column in columns.items():
            if column is not None and column.shape != (len(self.features),):
                raise DataError(
                    f"{name} must be one value for each of the {len(self.features)} examples, "
                    f"got the shape {column.shape}"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> "Examples":
        """Return a copy of the selected examples, in this order."""
        rows = np.asarray(indices, dtype=np.intp)
        return Examples(
            self.features[rows],
            self.labels[rows],
            None if self.groups is None else self.groups[rows],
            None if self.hospitals is None else self.hospitals[rows],
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set. Train and test use the same group numbers and have no group in common."""

    name: str

    train: Examples
    """The pool that hospitals' data are drawn from."""

    test: Examples
    """The coordinator's test set."""

    classes: tuple[str, ...]
    """The names of the labels 0, 1, …"""

    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many files were left out, by the reason."""

    def __post_init__(self) -> None:
        # Data sets also come from plug-ins, so they are checked here.
        for part in (self.train, self.test):
            if len(part) and not 0 <= part.labels.min() <= part.labels.max() < len(self.classes):
                raise DataError(
                    f"data set {self.name!r}: labels must be 0 … {len(self.classes) - 1}, "
                    f"one for each of its {len(self.classes)} classes"
                )
            if part.features.shape[1:] != self.shape:
                raise DataError(
                    f"data set {self.name!r}: train and test examples must have the same shape, "
                    f"got {self.shape} and {part.features.shape[1:]}"
                )
        if (
            self.train.groups is not None
            and self.test.groups is not None
            and np.intersect1d(self.train.groups, self.test.groups).size
        ):
            raise DataError(f"data set {self.name!r}: a group is in both train and test")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example's features."""
        return tuple(self.train.features.shape[1:])
