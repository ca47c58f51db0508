"""Groups of examples that belong together, and a test set that does not split them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError

GROUP_COLUMNS: tuple[str, ...] = (
    "patient",
    "patient_id",
    "patient_token",
    "near_dup_group",
    "exact_dup_group",
)
"""Column names that `group-column` = auto recognises."""

_TEST_SET = 1


def set_apart(
    count: int, groups: NDArray[np.int64] | None, fraction: float, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of the training pool and of a random test set, each sorted.

    The test set has round(fraction · count) rows, or slightly fewer where whole groups do not fit.
    """
    wanted = round(fraction * count)
    if count - wanted < 1 or (fraction > 0 and wanted < 1):
        raise DataError(
            f"test-fraction {fraction} of {count} examples leaves nothing to train or test with: "
            "change it or add data"
        )
    # A separate stream: callers use the bare seed for other generators.
    rng = np.random.default_rng([seed, _TEST_SET])
    in_test = np.zeros(count, dtype=bool)
    for rows in bundles(np.arange(count), groups, rng):
        if len(rows) <= wanted:
            in_test[rows] = True
            wanted -= len(rows)
    if fraction > 0 and not in_test.any():
        raise DataError(
            f"test-fraction {fraction}: every group has more than that part of the {count} "
            "examples: raise it, or set group-column to none"
        )
    return np.flatnonzero(~in_test), np.flatnonzero(in_test)


def bundles(
    rows: NDArray[np.intp], groups: NDArray[np.int64] | None, rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    """Return the rows bundled by group; bundles and rows in each are in random order."""
    rows = rng.permutation(rows)
    if groups is None:
        return list(rows.reshape(-1, 1))
    by_group = rows[np.argsort(groups[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[by_group])) + 1
    parts = np.split(by_group, starts) if len(rows) else []
    return [parts[i] for i in rng.permutation(len(parts))]


def unite(*columns: Sequence[str]) -> NDArray[np.int64]:
    """Number the groups of rows that share a non-empty value in some column.

    Two columns can chain: a patient's X-ray that is a copy of another patient's puts both
    patients into one group.
    """
    parent = list(range(len(columns[0])))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for column in columns:
        first: dict[str, int] = {}
        for row, value in enumerate(column):
            if value:
                parent[root(row)] = root(first.setdefault(value, row))
    roots = np.array([root(row) for row in range(len(parent))], dtype=np.int64)
    return np.unique(roots, return_inverse=True)[1].astype(np.int64)
