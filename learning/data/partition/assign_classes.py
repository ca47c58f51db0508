"""Assign classes to the hospitals of a pathological split."""

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError


def assign_classes(
    labels: NDArray[np.int64],
    hospitals: int,
    classes_each: int,
    lot_size: int,
    rng: np.random.Generator,
) -> list[set[int]]:
    """Return each hospital's classes; a class is assigned in proportion to its frequency.

    McMahan et al. (2017) sort by label, cut into lots of equal size and assign some to each
    client, so that a client may get two lots of one class. Here every hospital has exactly
    `classes_each` classes.
    """
    classes, counts = np.unique(labels, return_counts=True)
    # No hospital has two lots of one class.
    most = np.minimum(counts // lot_size, hospitals)
    if classes_each > len(classes):
        raise DataError(
            f"classes-per-hospital must be at most {len(classes)}, the classes with training "
            f"examples, got {classes_each}"
        )
    if most.sum() < hospitals * classes_each:
        raise DataError(
            f"{len(labels)} training examples make {most.sum()} lots of {lot_size} of one class, "
            f"but {hospitals} hospitals with {classes_each} classes each need "
            f"{hospitals * classes_each}: lower hospitals, examples or held-out"
        )
    lots = _lots_of_each(counts, most, hospitals * classes_each, rng)
    assigned = []
    for _ in range(hospitals):
        # The classes with most lots left, ties at random: then no class is left with more lots
        # than there are hospitals remaining.
        tie_break = rng.permutation(len(classes))
        chosen = tie_break[np.argsort(-lots[tie_break], kind="stable")][:classes_each]
        lots[chosen] -= 1
        assigned.append({int(label) for label in classes[chosen]})
    return [assigned[i] for i in rng.permutation(hospitals)]


def _lots_of_each(
    counts: NDArray[np.int64], most: NDArray[np.int64], total: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Apportion the lots to the classes by their number of examples (Webster's method)."""
    lots = np.zeros_like(counts)
    tie_break = rng.permutation(len(counts))
    for _ in range(total):
        claim = np.where(lots < most, counts / (2 * lots + 1), -1.0)
        lots[tie_break[np.argmax(claim[tie_break])]] += 1
    return lots
