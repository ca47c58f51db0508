"""Rows to features: a pure function of row and codebook, the same in training and prediction.

Nothing is fitted. An unknown level becomes `other`, a number out of its range is clipped, and a
missing cell is the centre with an indicator. How often that happened is for this hospital only.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError
from learning.data.tables.local_columns import LocalColumn, LocalColumns
from learning.data.tables.table import Cells, Table
from protocol.codebook import (
    CategoryColumn,
    Codebook,
    Column,
    NumberColumn,
    YesNoColumn,
    is_no,
    is_yes,
    level_key,
    name_key,
)

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_SHOWN_NAMES = 3
_AS_LISTED = LocalColumn()


@dataclass(frozen=True)
class ColumnCounts:
    """What was unusual about a column's cells. It never leaves the hospital."""

    missing: int = 0
    clipped: int = 0
    unknown: int = 0
    median_scales: float | None = None
    """A number's median before clipping, in scales from the centre."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """The features of a table's rows, and what was unusual about each of its columns."""

    features: NDArray[np.float32]
    counts: dict[str, ColumnCounts]


def encode(table: Table, codebook: Codebook, local: LocalColumns | None = None) -> Encoded:
    """Return the features of all rows; DataError lists everything that is wrong with the table."""
    problems: list[str] = []
    encoded = encode_columns(table, codebook, local or {}, problems)
    if problems:
        raise DataError(*problems)
    return encoded


def encode_columns(
    table: Table, codebook: Codebook, local: LocalColumns, problems: list[str]
) -> Encoded:
    """Do the same, but add what is wrong to `problems`."""
    features = np.zeros((len(table), len(codebook.features)), dtype=np.float32)
    counts: dict[str, ColumnCounts] = {}
    at = 0
    for column in codebook.columns:
        here = local.get(column.name, _AS_LISTED)
        width = len(column.features)
        name = find_column(table, column.name, here, problems)
        if name is not None:
            cells = _Cells(table, name, missing_keys(codebook, column), here)
            counts[column.name] = _encode(cells, column, features[:, at : at + width], problems)
        at += width
    return Encoded(features, counts)


def encode_labels(
    table: Table, codebook: Codebook, local: LocalColumns, problems: list[str]
) -> NDArray[np.int64]:
    """Return the position of each row's class; −1, and a problem, where it is none of them."""
    here = local.get(codebook.label, _AS_LISTED)
    name = find_column(table, codebook.label, here, problems)
    if name is None:
        return np.full(len(table), -1, dtype=np.int64)
    cells = _Cells(table, name, frozenset(), here)
    position = {level_key(label): index for index, label in enumerate(codebook.classes)}
    labels = np.array([position.get(key, -1) for key in cells.keys], dtype=np.int64)
    empty = np.array([not text for text in cells.texts], dtype=bool)
    if empty.any():
        problems.append(
            f"{cells.where(empty)}: the class is missing{_how_many(empty)}; fill it or remove the "
            "line"
        )
    unknown = (labels < 0) & ~empty
    if unknown.any():
        absent = [name for at, name in enumerate(codebook.classes) if not (labels == at).any()]
        found = f" ({', '.join(absent)} not found)" if absent else ""
        problems.append(
            f"{cells.where(unknown)}: none of the classes {', '.join(codebook.classes)}{found}"
            f"{_how_many(unknown)}; map your own words with levels in "
            f"[data.columns.{_toml_key(codebook.label)}]"
        )
    return labels


def find_column(table: Table, wanted: str, here: LocalColumn, problems: list[str]) -> str | None:
    """Return the local name of a column of the codebook, or add to `problems`."""
    name = table.find(here.column or wanted)
    if name is None:
        near = _nearest(here.column or wanted, table.columns)
        problems.append(
            f"{table.source}: no column {here.column or wanted!r}"
            + (f" (for the codebook's {wanted!r})" if here.column else "")
            + (f"; the nearest are {near}" if near else "")
            + f"; name yours in [data.columns.{_toml_key(wanted)}] of hospital.toml"
        )
    return name


def missing_keys(codebook: Codebook, column: Column) -> frozenset[str]:
    """Return the cells that mean missing in a column; a level of it never does."""
    levels = column.levels if isinstance(column, CategoryColumn) else ()
    markers = {level_key(marker) for marker in (*codebook.missing, *column.missing)}
    return frozenset(markers - set(map(level_key, levels)))


class _Cells:
    """One column of a table: texts, what they are compared by, and which are missing."""

    def __init__(self, table: Table, name: str, missing: frozenset[str], here: LocalColumn) -> None:
        self._table, self._name, self.here = table, name, here
        self.raw: Cells = table.columns[name]
        self.texts = table.texts(name)
        own = {level_key(mine): level_key(theirs) for mine, theirs in here.levels.items()}
        known: dict[str, str] = {}  # many cells are alike
        self.keys = []
        for text in self.texts:
            if text not in known:
                key = level_key(text)
                known[text] = own.get(key, key)
            self.keys.append(known[text])
        pairs = zip(self.texts, self.keys, strict=True)
        self.missing = np.array([not text or key in missing for text, key in pairs], dtype=bool)

    def where(self, rows: NDArray[np.bool_]) -> str:
        line = self._table.lines[int(np.flatnonzero(rows)[0])]
        return f"{self._table.source}, line {line}, column {self._name!r}"


def _encode(
    cells: _Cells, column: Column, features: NDArray[np.float32], problems: list[str]
) -> ColumnCounts:
    features[:, -1] = cells.missing
    missing = int(cells.missing.sum())
    match column:
        case NumberColumn():
            return _encode_numbers(cells, column, features, problems)
        case CategoryColumn():
            position = {level_key(level): at for at, level in enumerate(column.levels)}
            at = np.array([position.get(key, len(position)) for key in cells.keys], dtype=np.intp)
            present = np.flatnonzero(~cells.missing)
            features[present, at[present]] = 1.0
            return ColumnCounts(missing, unknown=int((at[present] == len(position)).sum()))
        case YesNoColumn():
            yes = np.array([is_yes(key) for key in cells.keys], dtype=bool) & ~cells.missing
            no = np.array([is_no(key) for key in cells.keys], dtype=bool) & ~cells.missing
            features[:, 0] = yes.astype(np.float32) - no.astype(np.float32)
            features[:, 1] = ~(yes | no)
            return ColumnCounts(missing, unknown=int((~(yes | no | cells.missing)).sum()))


def _encode_numbers(
    cells: _Cells, column: NumberColumn, features: NDArray[np.float32], problems: list[str]
) -> ColumnCounts:
    if isinstance(cells.raw, list):
        is_text = np.array([_NUMBER.fullmatch(text) is None for text in cells.texts], dtype=bool)
        is_text &= ~cells.missing
        if is_text.any():
            problems.append(
                f"{cells.where(is_text)}: not a number{_how_many(is_text)}; correct it, or name "
                "what means missing to the coordinator"
            )
        skipped = is_text | cells.missing
        pairs = zip(cells.texts, skipped, strict=True)
        values = np.array([np.nan if skip else float(text) for text, skip in pairs])
    else:
        values = np.where(cells.missing, np.nan, cells.raw)
    values = values * cells.here.factor
    known = ~np.isnan(values)
    low, high = column.range
    clipped = known & ((values < low) | (values > high))
    scaled = (np.clip(values, low, high) - column.centre) / column.scale
    features[:, 0] = np.where(known, scaled, 0.0)
    median = float(np.median(values[known]) - column.centre) if known.any() else None
    return ColumnCounts(
        int(cells.missing.sum()),
        clipped=int(clipped.sum()),
        median_scales=None if median is None else median / column.scale,
    )


def _nearest(wanted: str, names: Iterable[str]) -> str:
    by_key = {name_key(name): name for name in names}
    key = name_key(wanted)
    near = [own for own in by_key if key in own]
    near += [own for own in get_close_matches(key, by_key, _SHOWN_NAMES, 0.4) if own not in near]
    return ", ".join(repr(by_key[own]) for own in near[:_SHOWN_NAMES])


def _how_many(rows: NDArray[np.bool_]) -> str:
    count = int(rows.sum())
    return "" if count == 1 else f" ({count} cells)"


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
