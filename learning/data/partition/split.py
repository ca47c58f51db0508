"""Split a training pool among hospitals without splitting groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Examples
from learning.data.partition.assign_classes import assign_classes
from learning.data.partition.partition import assign_group, partition_rows
from learning.data.partition.skewed_sizes import skewed_sizes
from learning.data.tables.encode import ColumnCounts

SplitKind = Literal["equal", "pathological", "skewed", "natural"]

Rows = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """How examples are divided among hospitals."""

    kind: SplitKind = "equal"
    """equal: the same number each, at random. pathological: also only a few classes each.
    skewed: the paper's many small and few large hospitals. natural: the data set's own."""

    hospitals: int = 0
    """Number of hospitals; natural: as many as the data set has, or 0."""

    examples: int = 0
    """Training examples of each hospital; skewed: of the average hospital; natural: unused."""

    held_out: int = 0
    """Examples of each hospital that it never trains on, of the same distribution."""

    classes_per_hospital: int = 2
    """pathological: the number of classes each hospital has."""

    skew_small_fraction: float = 0.3
    """skewed: the paper's c, the fraction of hospitals that have only the minimum."""

    skew_min_examples: int = 2
    """skewed: the paper's n_min, the training examples of the smallest hospitals."""

    def __post_init__(self) -> None:
        if self.kind not in ("equal", "pathological", "skewed", "natural"):
            raise DataError(
                f"split must be equal, pathological, skewed or natural, got {self.kind!r}"
            )
        lower = {"hospitals": (self.hospitals, 0), "held-out": (self.held_out, 0)}
        if self.kind != "natural":
            lower |= {"hospitals": (self.hospitals, 1), "examples": (self.examples, 1)}
        if self.kind == "pathological":
            lower["classes-per-hospital"] = (self.classes_per_hospital, 1)
        if self.kind == "skewed":
            lower["skew-min-examples"] = (self.skew_min_examples, 1)
        for setting, (value, least) in lower.items():
            if value < least:
                raise DataError(f"{setting} must be at least {least}, got {value}")


@dataclass(frozen=True, eq=False)
class Partition:
    """One hospital's examples: for training, and held out."""

    name: str
    train: Examples
    held_out: Examples

    classes: tuple[str, ...] | None = None
    """The classes that were agreed on, in order; None if labels are as found in the data."""

    columns: Mapping[str, ColumnCounts] = field(default_factory=dict)
    """What was unusual about each column of the codebook. It never leaves the hospital."""

    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many files were left out, by the reason. It never leaves the hospital."""


def split(examples: Examples, options: SplitOptions, rng: np.random.Generator) -> list[Partition]:
    """Return the hospitals' partitions, sorted by name; no example or group is in two of them.

    A group with more examples than a hospital has room for loses the rest.
    """
    if options.kind == "natural":
        return _natural(examples, options, rng)
    if options.kind == "pathological":
        train, held_out = _pathological(examples, options, rng)
    else:
        sizes = [options.examples] * options.hospitals
        if options.kind == "skewed":
            sizes = skewed_sizes(
                options.hospitals,
                options.examples,
                small_fraction=options.skew_small_fraction,
                min_examples=options.skew_min_examples,
            )
        train, held_out = _at_random(examples, sizes, options, rng)
    digits = max(2, len(str(options.hospitals)))
    return [
        _partition(f"hospital-{number:0{digits}}", examples, rows, held)
        for number, (rows, held) in enumerate(zip(train, held_out, strict=True), start=1)
    ]


def _partition(name: str, examples: Examples, train: Rows, held_out: Rows) -> Partition:
    return Partition(name, examples.take(np.sort(train)), examples.take(np.sort(held_out)))


def _at_random(
    examples: Examples, sizes: Sequence[int], options: SplitOptions, rng: np.random.Generator
) -> tuple[list[Rows], list[Rows]]:
    wanted = [*sizes, *[options.held_out] * options.hospitals]
    parts = partition_rows(np.arange(len(examples)), examples.groups, wanted, rng)
    _check_enough("the data set", len(examples), parts, sum(wanted))
    return parts[: options.hospitals], parts[options.hospitals :]


def _pathological(
    examples: Examples, options: SplitOptions, rng: np.random.Generator
) -> tuple[list[Rows], list[Rows]]:
    per_class = options.classes_per_hospital
    for setting, number in (("examples", options.examples), ("held-out", options.held_out)):
        if number % per_class:
            raise DataError(
                f"{setting} must be a multiple of classes-per-hospital, {per_class}, so that a "
                f"hospital has the same number of each class, got {number}"
            )
    train_size, held_size = options.examples // per_class, options.held_out // per_class
    rows = np.arange(len(examples))
    if examples.groups is not None:
        rows = assign_group(rows, examples.groups, examples.labels)
    labels = examples.labels[rows]

    classes_of = assign_classes(labels, options.hospitals, per_class, train_size + held_size, rng)
    train: list[list[Rows]] = [[] for _ in range(options.hospitals)]
    held_out: list[list[Rows]] = [[] for _ in range(options.hospitals)]
    for label in np.unique(labels):
        owners = [owner for owner, classes in enumerate(classes_of) if label in classes]
        wanted = [train_size] * len(owners) + [held_size] * len(owners)
        candidates = rows[labels == label]
        parts = partition_rows(candidates, examples.groups, wanted, rng)
        _check_enough(f"class {label}", len(candidates), parts, sum(wanted))
        for place, owner in enumerate(owners):
            train[owner].append(parts[place])
            held_out[owner].append(parts[len(owners) + place])
    return [np.concatenate(parts) for parts in train], [np.concatenate(p) for p in held_out]


def _natural(
    examples: Examples, options: SplitOptions, rng: np.random.Generator
) -> list[Partition]:
    if examples.hospitals is None:
        raise DataError(
            "split natural needs each example's hospital, which this data set does not have: "
            "choose another split (for csv: set hospital-column)"
        )
    names, owners = np.unique(examples.hospitals, return_inverse=True)
    if options.hospitals not in (0, len(names)):
        raise DataError(
            f"split natural has one hospital for each of the data set's {len(names)}: set "
            f"hospitals to {len(names)} or 0, got {options.hospitals}"
        )
    rows = np.arange(len(examples))
    if examples.groups is not None:
        rows = assign_group(rows, examples.groups, owners)
    partitions = []
    for owner, name in enumerate(names):
        own = rows[owners[rows] == owner]
        # A hospital that would lose more than half of its examples holds none out.
        size = options.held_out if 2 * options.held_out <= len(own) else 0
        (held,) = partition_rows(own, examples.groups, [size], rng)
        part_of = own if examples.groups is None else examples.groups[own]
        gone = held if examples.groups is None else examples.groups[held]
        partitions.append(_partition(str(name), examples, own[~np.isin(part_of, gone)], held))
    return partitions


def _check_enough(whose: str, have: int, parts: Sequence[Rows], wanted: int) -> None:
    assigned = sum(len(part) for part in parts)
    if assigned == wanted:
        return
    usable = "" if have < wanted else f" ({assigned} without splitting groups)"
    raise DataError(
        f"{whose} has {have} training examples{usable}, but the hospitals need {wanted}: lower "
        "hospitals, examples or held-out"
    )
