"""Divides a training pool among hospitals, without parting what belongs together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Examples
from learning.data.partition.assign_classes import assign_classes
from learning.data.partition.partition import assign_group, deal
from learning.data.partition.skewed_sizes import skewed_sizes

SplitKind = Literal["equal", "pathological", "skewed", "natural"]

Rows = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """How examples are divided among hospitals."""

    kind: SplitKind = "equal"
    """equal: the same number each, at random. pathological: also only a few classes each.
    skewed: the paper's many small and few large hospitals. natural: the data set's own."""

    hospitals: int = 0
    """How many; natural: as many as the data set has, or 0."""

    examples: int = 0
    """Training examples of each hospital; skewed: of the average hospital; natural: unused,
    each hospital has what it has."""

    held_out: int = 0
    """Examples of each hospital that it never trains on, of the same distribution."""

    classes_per_hospital: int = 2
    """pathological: the number of classes each hospital has."""

    skew_small_fraction: float = 0.3
    """skewed: the paper's c, the share of hospitals that have only the minimum."""

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
    """One hospital's part of the data."""

    name: str
    train: Examples
    held_out: Examples


def split(examples: Examples, how: SplitOptions, rng: np.random.Generator) -> list[Partition]:
    """Return the hospitals' shares, sorted by name; no example is in two of them.

    Nor is a group. A group with more examples than a hospital has room for loses its surplus.
    """
    if how.kind == "natural":
        return _natural(examples, how, rng)
    if how.kind == "pathological":
        train, held_out = _pathological(examples, how, rng)
    else:
        sizes = [how.examples] * how.hospitals
        if how.kind == "skewed":
            sizes = skewed_sizes(
                how.hospitals,
                how.examples,
                small_fraction=how.skew_small_fraction,
                min_examples=how.skew_min_examples,
            )
        train, held_out = _at_random(examples, sizes, how, rng)
    digits = max(2, len(str(how.hospitals)))
    return [
        _share(f"hospital-{number:0{digits}}", examples, rows, held)
        for number, (rows, held) in enumerate(zip(train, held_out, strict=True), start=1)
    ]


def _share(name: str, examples: Examples, train: Rows, held_out: Rows) -> Partition:
    return Partition(name, examples.take(np.sort(train)), examples.take(np.sort(held_out)))


def _at_random(
    examples: Examples, sizes: Sequence[int], how: SplitOptions, rng: np.random.Generator
) -> tuple[list[Rows], list[Rows]]:
    wanted = [*sizes, *[how.held_out] * how.hospitals]
    hands = deal(np.arange(len(examples)), examples.groups, wanted, rng)
    _check_enough("the data set", len(examples), hands, sum(wanted))
    return hands[: how.hospitals], hands[how.hospitals :]


def _pathological(
    examples: Examples, how: SplitOptions, rng: np.random.Generator
) -> tuple[list[Rows], list[Rows]]:
    per_class = how.classes_per_hospital
    for setting, number in (("examples", how.examples), ("held-out", how.held_out)):
        if number % per_class:
            raise DataError(
                f"{setting} must be a multiple of classes-per-hospital, {per_class}, so that a "
                f"hospital has the same number of each class, got {number}"
            )
    train_size, held_size = how.examples // per_class, how.held_out // per_class
    rows = np.arange(len(examples))
    if examples.groups is not None:
        rows = assign_group(rows, examples.groups, examples.labels)
    labels = examples.labels[rows]

    classes_of = assign_classes(labels, how.hospitals, per_class, train_size + held_size, rng)
    train: list[list[Rows]] = [[] for _ in range(how.hospitals)]
    held_out: list[list[Rows]] = [[] for _ in range(how.hospitals)]
    for label in np.unique(labels):
        owners = [owner for owner, classes in enumerate(classes_of) if label in classes]
        wanted = [train_size] * len(owners) + [held_size] * len(owners)
        candidates = rows[labels == label]
        hands = deal(candidates, examples.groups, wanted, rng)
        _check_enough(f"class {label}", len(candidates), hands, sum(wanted))
        for place, owner in enumerate(owners):
            train[owner].append(hands[place])
            held_out[owner].append(hands[len(owners) + place])
    return [np.concatenate(parts) for parts in train], [np.concatenate(p) for p in held_out]


def _natural(examples: Examples, how: SplitOptions, rng: np.random.Generator) -> list[Partition]:
    if examples.silos is None:
        raise DataError(
            "split natural needs each example's hospital, which this data set does not say: "
            "choose another split (for csv: set hospital-column)"
        )
    names, homes = np.unique(examples.silos, return_inverse=True)
    if how.hospitals not in (0, len(names)):
        raise DataError(
            f"split natural has one hospital for each of the data set's {len(names)}: set "
            f"hospitals to {len(names)} or 0, got {how.hospitals}"
        )
    rows = np.arange(len(examples))
    if examples.groups is not None:
        rows = assign_group(rows, examples.groups, homes)
    shares = []
    for home, name in enumerate(names):
        own = rows[homes[rows] == home]
        # A hospital too small to give up the half of its examples holds none out.
        size = how.held_out if 2 * how.held_out <= len(own) else 0
        (held,) = deal(own, examples.groups, [size], rng)
        part_of = own if examples.groups is None else examples.groups[own]
        gone = held if examples.groups is None else examples.groups[held]
        shares.append(_share(str(name), examples, own[~np.isin(part_of, gone)], held))
    return shares


def _check_enough(whose: str, have: int, hands: Sequence[Rows], wanted: int) -> None:
    dealt = sum(len(hand) for hand in hands)
    if dealt == wanted:
        return
    usable = "" if have < wanted else f" ({dealt} without parting what belongs together)"
    raise DataError(
        f"{whose} has {have} training examples{usable}, but the hospitals need {wanted}: lower "
        "hospitals, examples or held-out"
    )
