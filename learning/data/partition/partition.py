"""Partition rows into parts of exact sizes without splitting groups."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from learning.data.partition.groups import bundles


def partition_rows(
    rows: NDArray[np.intp],
    groups: NDArray[np.int64] | None,
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> list[NDArray[np.intp]]:
    """Return one part of random rows for each size; parts are short if there are too few rows.

    A group goes to one part. If it fits into none, the part with most room left takes as many rows
    as it can hold, and the rest of the group is dropped.
    """
    if groups is None:
        return np.split(rng.permutation(rows)[: sum(sizes)], np.cumsum(sizes)[:-1])
    assigned: list[list[NDArray[np.intp]]] = [[] for _ in sizes]
    room = np.array(sizes, dtype=np.int64)
    for bundle in _large_ones_first(bundles(rows, groups, rng), sizes):
        if not room.any():
            break
        part = _random_part(np.where(room >= len(bundle), room, 0), rng)
        if part is None:
            part = int(room.argmax())
        assigned[part].append(bundle[: room[part]])
        room[part] -= len(assigned[part][-1])
    nothing = np.array([], dtype=np.intp)
    return [np.concatenate([nothing, *parts]) for parts in assigned]


def _large_ones_first(
    shuffled: list[NDArray[np.intp]], sizes: Sequence[int]
) -> list[NDArray[np.intp]]:
    """Sort the first bundles, as many as suffice, by size; append the others.

    Small bundles at the end fill the gaps exactly. Sorting all bundles would prefer patients with
    many images.
    """
    usable = np.cumsum([min(len(bundle), max(sizes, default=0)) for bundle in shuffled])
    suffice = int(np.searchsorted(usable, sum(sizes))) + 1
    return sorted(shuffled[:suffice], key=len, reverse=True) + shuffled[suffice:]


def _random_part(room: NDArray[np.int64], rng: np.random.Generator) -> int | None:
    """Draw a part with a probability proportional to its room, as for single rows."""
    places = np.cumsum(room)
    if not places[-1]:
        return None
    return int(np.searchsorted(places, rng.integers(places[-1]), side="right"))


def assign_group(
    rows: NDArray[np.intp], groups: NDArray[np.int64], owners: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Assign each group to its most frequent owner (the first of equals); return that owner's rows.

    `owners` holds the class or the hospital of each row. A group with several owners could not
    stay together, so its other rows are dropped.
    """
    pairs, counts = np.unique(np.stack([groups[rows], owners[rows]]), axis=1, return_counts=True)
    # By group, then most frequent, then first owner; the first entry of each group counts.
    order = np.lexsort((pairs[1], -counts, pairs[0]))
    found, first = np.unique(pairs[0][order], return_index=True)
    owner_of_group = pairs[1][order][first]
    kept: NDArray[np.bool_] = owner_of_group[np.searchsorted(found, groups[rows])] == owners[rows]
    return rows[kept]
