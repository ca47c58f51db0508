"""Deals rows to hands of exact sizes without parting groups."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from learning.data.partition.grouping import bundles


def deal(
    rows: NDArray[np.intp],
    groups: NDArray[np.int64] | None,
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> list[NDArray[np.intp]]:
    """Return one hand of random rows for each size; short hands if there are too few rows.

    A group goes to one hand. Where it does not fit into any, the largest room left gets what
    it can hold and the group's surplus is dropped.
    """
    if groups is None:
        return np.split(rng.permutation(rows)[: sum(sizes)], np.cumsum(sizes)[:-1])
    hands: list[list[NDArray[np.intp]]] = [[] for _ in sizes]
    room = np.array(sizes, dtype=np.int64)
    for bundle in _large_ones_first(bundles(rows, groups, rng), sizes):
        if not room.any():
            break
        hand = _random_hand(np.where(room >= len(bundle), room, 0), rng)
        if hand is None:
            hand = int(room.argmax())
        hands[hand].append(bundle[: room[hand]])
        room[hand] -= len(hands[hand][-1])
    nothing = np.array([], dtype=np.intp)
    return [np.concatenate([nothing, *parts]) for parts in hands]


def _large_ones_first(
    shuffled: list[NDArray[np.intp]], sizes: Sequence[int]
) -> list[NDArray[np.intp]]:
    """Sort the random bundles that suffice by size; the others wait behind, in case.

    Small bundles last fill the gaps exactly. Sorting all of them instead would prefer
    patients with many images.
    """
    usable = np.cumsum([min(len(bundle), max(sizes, default=0)) for bundle in shuffled])
    suffice = int(np.searchsorted(usable, sum(sizes))) + 1
    return sorted(shuffled[:suffice], key=len, reverse=True) + shuffled[suffice:]


def _random_hand(room: NDArray[np.int64], rng: np.random.Generator) -> int | None:
    """Draw a hand with the chance of each proportional to its room, as for single rows."""
    places = np.cumsum(room)
    if not places[-1]:
        return None
    return int(np.searchsorted(places, rng.integers(places[-1]), side="right"))


def assign_group(
    rows: NDArray[np.intp], groups: NDArray[np.int64], homes: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Return the rows in their group's most frequent home (the first of equals).

    `homes` is a class or a hospital that decides who gets a row: a group with several could
    not stay together.
    """
    pairs, counts = np.unique(np.stack([groups[rows], homes[rows]]), axis=1, return_counts=True)
    # By group, then most frequent, then first home; of each group the first counts.
    order = np.lexsort((pairs[1], -counts, pairs[0]))
    found, first = np.unique(pairs[0][order], return_index=True)
    home_of_group = pairs[1][order][first]
    at_home: NDArray[np.bool_] = home_of_group[np.searchsorted(found, groups[rows])] == homes[rows]
    return rows[at_home]
