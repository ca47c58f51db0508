"""UCI Heart Disease: 920 patients of four hospitals, one file from each.

Use of the 13 attributes:

- `slope`, `ca` and `thal` are left out. Outside Cleveland they are missing for up to 65 %,
  99 % and 90 % of the patients: imputed they would be constants there, and an indicator of
  their being missing would tell the model the hospital, whose rates of disease range from
  36 % to 94 %.
- `chol` = 0 and `trestbps` = 0 are impossible and mean missing, like `?`.
- `cp` (kind of chest pain) and `restecg` (kind of ECG) are names, not amounts: one column
  for each value; a missing `restecg` (2 patients) is none of them.
- Other missing values are replaced by the training pool's median. Only `chol` is missing for more
  than a tenth of all patients (22 %) and has a column that says so.

The label is 1 where `num` > 0. All 16 columns are standardised over the training pool.
Equal lines at a hospital are taken for one patient entered twice and kept together.
"""

import csv
import io
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Dataset, Examples
from learning.data.options import DataOptions
from learning.data.partition.groups import set_apart, unite
from learning.data.scale import standardise
from learning.data.sources import SOURCES, read_text, require

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")

_ATTRIBUTES = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
)  # fmt: skip
_AMOUNTS = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
_KINDS = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}
_ZERO_IS_MISSING = ("trestbps", "chol")
_NEVER_MISSING = ("cp", "num")
_CLASSES = ("no disease", "disease")


def heart_disease(folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read the four processed files, one per hospital."""
    root = require("heart-disease", folder)
    tables, hospitals, patients = [], [], []
    for hospital in HOSPITALS:
        table, lines = _read(root / f"processed.{hospital}.data")
        tables.append(table)
        hospitals += [hospital] * len(table)
        patients += [f"{hospital}: {line}" for line in lines]
    records = np.concatenate(tables)
    groups = None if options.group_column == "none" else unite(patients)

    pool, test = set_apart(len(records), groups, options.test_fraction, seed)
    labels = (_column(records, "num") > 0).astype(np.int64)
    features = standardise(_columns(records, pool), pool)
    examples = Examples(features, labels, groups, np.array(hospitals, dtype=np.str_))
    return Dataset("heart-disease", examples.take(pool), examples.take(test), _CLASSES)


def _read(path: Path) -> tuple[NDArray[np.float64], list[str]]:
    """Return the patients' attributes, NaN where missing, and their lines as text."""
    rows, lines = [], []
    for number, cells in enumerate(csv.reader(io.StringIO(read_text(path))), start=1):
        if not cells:
            continue
        if len(cells) != len(_ATTRIBUTES):
            raise DataError(
                f"{path}, line {number}: {len(cells)} values where {len(_ATTRIBUTES)} are "
                f"expected; fetch it again from {SOURCES['heart-disease'].publisher}"
            )
        rows.append([_value(path, number, *pair) for pair in zip(_ATTRIBUTES, cells, strict=True)])
        lines.append(",".join(cells))
    if not rows:
        raise DataError(f"{path}: empty; fetch it again from {SOURCES['heart-disease'].publisher}")
    return np.array(rows, dtype=np.float64), lines


def _value(path: Path, line: int, attribute: str, cell: str) -> float:
    missing = cell.strip() == "?"
    try:
        value = math.nan if missing else float(cell)
    except ValueError:
        value = math.inf
    possible = attribute not in _NEVER_MISSING if missing else math.isfinite(value)
    if attribute in _KINDS and not missing:
        possible = value in _KINDS[attribute]
    if not possible:
        raise DataError(
            f"{path}, line {line}: column {attribute!r} is not a value it can have; expected "
            "UCI's processed file, which has no header"
        )
    return math.nan if value == 0 and attribute in _ZERO_IS_MISSING else value


def _column(records: NDArray[np.float64], attribute: str) -> NDArray[np.float64]:
    return records[:, _ATTRIBUTES.index(attribute)]


def _columns(records: NDArray[np.float64], pool: NDArray[np.intp]) -> NDArray[np.float64]:
    columns = [np.isnan(_column(records, "chol")).astype(np.float64)]
    for attribute in _AMOUNTS:
        values = _column(records, attribute)
        known = values[pool][~np.isnan(values[pool])]
        # A pool that knows no value at all can only come from tiny files.
        median = np.median(known) if len(known) else 0.0
        columns.append(np.where(np.isnan(values), median, values))
    for attribute, kinds in _KINDS.items():
        values = _column(records, attribute)
        columns += [(values == kind).astype(np.float64) for kind in kinds]
    return np.stack(columns, axis=1)
