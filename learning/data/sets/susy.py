"""SUSY: five million simulated collisions, 18 features; and a generated stand-in of its shape."""

import gzip
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Dataset, Examples
from learning.data.options import DataOptions
from learning.data.sources import SOURCES, require

_FEATURES = 18
# "A test set with 1 000 000 samples drawn iid at random" (appendix, SUSY experiments).
_TEST = 1_000_000
_CLASSES = ("background", "signal")
# A stream of its own: callers make generators of the bare seed for other purposes.
_STREAM = 0x73757379

# The stand-in: the best linear model is right with probability 1 − arctan(noise)/π = 0.8.
_STAND_IN_NOISE = np.tan(0.2 * np.pi)
_STAND_IN_POOL, _STAND_IN_TEST = 20_000, 20_000


def susy(folder: Path | None, seed: int, _options: DataOptions) -> Dataset:
    """Read the publisher's SUSY.csv, or SUSY.csv.gz; a fifth of all examples is the test set.

    A line is the label, 1 for signal, and 18 features, which keep the publisher's scale.
    """
    root = require("susy", folder)
    found = [root / name for name in ("SUSY.csv", "SUSY.csv.gz") if (root / name).is_file()]
    if not found:
        raise DataError(
            f"{root}: neither SUSY.csv nor SUSY.csv.gz; they come from {SOURCES['susy'].publisher}"
        )
    stat = found[0].stat()
    features, labels = _read(found[0], stat.st_mtime_ns, stat.st_size)
    order = np.random.default_rng([seed, _STREAM]).permutation(len(labels))
    test, pool = np.split(order, [min(_TEST, len(order) // 5)])

    def examples(rows: NDArray[np.intp]) -> Examples:
        return Examples(features[rows], labels[rows])

    return Dataset("susy", examples(pool), examples(test), _CLASSES)


def susy_stand_in(_folder: Path | None, seed: int, _options: DataOptions) -> Dataset:
    """Generate 18 correlated features and labels that a linear model gets right four times in five.

    It has SUSY's shape and is about as hard for a linear model, and nothing else of it: figures on
    it are no figures on SUSY.
    """
    rng = np.random.default_rng([seed, _STREAM])
    mixing = rng.normal(size=(_FEATURES, _FEATURES)) / np.sqrt(_FEATURES) + np.eye(_FEATURES)
    causes = rng.normal(size=(_STAND_IN_POOL + _STAND_IN_TEST, _FEATURES))
    direction = rng.normal(size=_FEATURES)
    score = causes @ (direction / np.linalg.norm(direction))
    labels = (score + _STAND_IN_NOISE * rng.normal(size=len(score)) > 0).astype(np.int64)
    examples = Examples((causes @ mixing).astype(np.float32), labels)
    rows = np.arange(len(examples))
    pool, test = rows[:_STAND_IN_POOL], rows[_STAND_IN_POOL:]
    return Dataset("susy-stand-in", examples.take(pool), examples.take(test), _CLASSES)


@lru_cache(maxsize=1)
def _read(path: Path, _modified: int, _size: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read the table; kept, as every hospital asks again and reading takes a minute."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="ascii") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.float32, ndmin=2)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(
            f"{path}: not a complete table of numbers ({error}); fetch it again"
        ) from error
    if table.shape[1] != 1 + _FEATURES:
        raise DataError(
            f"{path}: {table.shape[1]} columns where SUSY has a label and {_FEATURES} features; "
            "fetch it again"
        )
    labels = table[:, 0].astype(np.int64)
    if not np.isin(table[:, 0], (0, 1)).all():
        raise DataError(f"{path}: the first column must be 0 or 1, the label; fetch it again")
    return table[:, 1:], labels
