"""A user's own table: one csv file with a line for each example, numbers and a label."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Dataset, Examples
from learning.data.options import DataOptions
from learning.data.partition.groups import GROUP_COLUMNS, set_apart, unite
from learning.data.partition.held_out import identities, row_contents
from learning.data.scale import standardise
from learning.data.sources import require
from learning.data.tables.dialect import CsvRows

_SHOWN_LINES = 5
_SHOWN_COLUMNS = 20
# Gene expression has tens of thousands of columns, methylation most of a million.
_MOST_COLUMNS = 1_000_000
_EMPTY = "is empty; fill it or remove the line"


def csv_file(folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read the file `folder`, or the only csv file in it; standardised over the training pool.

    Features are ordered by column name, so that hospitals with the same columns in another order
    train the same model.
    """
    path = _only_csv(require("csv", folder))
    table = _read(path, options)
    label, hospital = options.label_column, options.hospital_column
    found = set(table.texts[label]) - {""}
    classes = options.classes or tuple(_in_order(found))
    labels = table.labels(label, classes)
    groups = unite(*[table.texts[name] for name in table.grouping]) if table.grouping else None
    hospitals = np.array(table.texts[hospital], dtype=np.str_) if hospital else None
    table.problems.raise_if_any()
    if len(classes) < 2:
        raise DataError(
            f"{path}: only one class in column {label!r}; name all of the study's "
            "classes with the setting classes"
        )

    if options.held_out is None:
        pool, test = set_apart(len(labels), groups, options.test_fraction, seed)
    else:
        patients = [table.texts[name] for name in table.grouping]
        whose = identities(patients, row_contents(table.values, labels))
        together = unite(whose) if groups is None else groups
        pool, test = options.held_out.set_apart(whose, together, options.test_fraction)
    values = table.values
    features = standardise(values, pool) if options.standardise else values.astype(np.float32)
    examples = Examples(features, labels, groups, hospitals)
    return Dataset("csv", examples.take(pool), examples.take(test), classes)


class _Problems:
    """What is wrong in which lines of a file, to be reported all at once.

    Messages name a cell's position, never its value: it may be private.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # By the column's rank and the text, without repetition.
        self._lines: dict[tuple[int, str], dict[int, None]] = {}

    def add(self, line: int, text: str, *, rank: int = -1) -> None:
        self._lines.setdefault((rank, text), {})[line] = None

    def raise_if_any(self) -> None:
        """Report all problems, those of one column together."""
        ordered = sorted(self._lines.items(), key=lambda item: (item[0][0], next(iter(item[1]))))
        if ordered:
            raise DataError(*(self._in_words(text, list(at)) for (_, text), at in ordered))

    def _in_words(self, text: str, lines: list[int]) -> str:
        first, *others = lines
        message = f"{self._path}, line {first}: {text}"
        if not others:
            return message
        shown = ", ".join(map(str, others[:_SHOWN_LINES]))
        more = len(others) - _SHOWN_LINES
        return f"{message} (also in line {shown}{f' and {more} more' if more > 0 else ''})"


@dataclass(frozen=True)
class _Table:
    """The cells of a file: texts of the columns that are no features, numbers of those that are."""

    names: list[str]
    grouping: list[str]
    lines: list[int]
    texts: dict[str, list[str]]
    values: NDArray[np.float64]
    problems: _Problems

    def labels(self, name: str, classes: Sequence[str]) -> NDArray[np.int64]:
        position = {label: index for index, label in enumerate(classes)}
        cells = self.texts[name]
        for line, cell in zip(self.lines, cells, strict=True):
            if cell and cell not in position:
                text = f"column {name!r} is none of the classes {', '.join(classes)}"
                self.problems.add(line, text, rank=len(self.names))
        return np.array([position.get(cell, -1) for cell in cells], dtype=np.int64)


def _only_csv(place: Path) -> Path:
    if place.is_file():
        return place
    found = sorted(path for path in place.iterdir() if path.suffix.lower() == ".csv")
    if len(found) != 1:
        raise DataError(
            f"{place}: {len(found)} csv files where exactly one is expected; "
            "let data-dir name the file itself"
        )
    return found[0]


def _read(path: Path, options: DataOptions) -> _Table:
    """Read the table row by row: as text, the cells of wide ones would not fit into memory."""
    reader = CsvRows.open(path)
    problems = _Problems(path)
    lines: list[int] = []
    header = [name.strip() for name in next(reader, [])]
    _check_header(path, header)
    grouping = _group_columns(header, options.group_column)
    label, hospital = options.label_column, options.hospital_column
    for setting, names in (
        ("label-column", [label]),
        ("hospital-column", [hospital] if hospital else []),
        ("group-column", grouping),
    ):
        for name in names:
            _require(path, header, name, setting)
    texts: dict[str, list[str]] = {name: [] for name in (label, hospital, *grouping) if name}
    filled = {name for name in (label, hospital) if name}
    # A patient's number is never a feature, even when patients need not stay together.
    features = _Features(path, header, {*texts, *GROUP_COLUMNS}, problems)
    position = {name: at for at, name in enumerate(header)}
    for row in reader:
        if len(row) not in (0, len(header)):
            text = f"{len(row)} cells where the header has {len(header)}; correct the line"
            problems.add(reader.line, text)
        elif row:
            lines.append(reader.line)
            features.add(list(map(reader.number, row)), reader.line)
            for name, cells in texts.items():
                cells.append(row[position[name]].strip())
                if name in filled and not cells[-1]:
                    text = f"column {name!r} {_EMPTY}"
                    problems.add(reader.line, text, rank=len(features.names))
    if not lines:
        problems.raise_if_any()
        raise _no_examples(path)
    return _Table(features.names, grouping, lines, texts, np.stack(features.rows), problems)


class _Features:
    """The columns that are features, in the order of their names, as numbers."""

    def __init__(self, path: Path, header: list[str], others: set[str], problems: _Problems):
        self.names = sorted(set(header) - others)
        if not self.names:
            raise DataError(f"{path}: no columns besides {_some(header)}; add features")
        position = {name: at for at, name in enumerate(header)}
        self._positions = [position[name] for name in self.names]
        self._problems = problems
        self.rows: list[NDArray[np.float64]] = []

    def add(self, row: list[str], line: int) -> None:
        cells = [row[at] for at in self._positions]
        try:
            numbers = np.array(list(map(float, cells)))
        except ValueError:
            numbers = np.full(len(cells), math.nan)
        if not np.isfinite(numbers).all():
            self._diagnose(cells, line)
        self.rows.append(numbers)

    def _diagnose(self, cells: list[str], line: int) -> None:
        for rank, (name, cell) in enumerate(zip(self.names, map(str.strip, cells), strict=True)):
            try:
                is_fine = math.isfinite(float(cell))
            except ValueError:
                is_fine = False
            if not is_fine:
                what = "is not a number; correct it or remove the column" if cell else _EMPTY
                self._problems.add(line, f"column {name!r} {what}", rank=rank)


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise _no_examples(path)
    if len(header) > _MOST_COLUMNS:
        raise DataError(
            f"{path}: {len(header)} columns, more than {_MOST_COLUMNS}; leave out those that the "
            "study does not use"
        )
    twice = sorted(name for name, count in Counter(header).items() if count > 1)
    if twice:
        raise DataError(f"{path}: column {twice[0]!r} is there twice; rename or remove one")


def _require(path: Path, header: list[str], column: str, setting: str) -> None:
    if column not in header:
        raise DataError(
            f"{path}: no column {column!r}; set {setting} to one of its columns: {_some(header)}"
        )


def _some(header: list[str]) -> str:
    more = len(header) - _SHOWN_COLUMNS
    shown = ", ".join(header[:_SHOWN_COLUMNS])
    return f"{shown} and {more} more" if more > 0 else shown


def _no_examples(path: Path) -> DataError:
    return DataError(f"{path}: no examples in it; expected a header and a line for each")


def _group_columns(header: list[str], setting: str) -> list[str]:
    if setting == "none":
        return []
    if setting == "auto":
        return [name for name in GROUP_COLUMNS if name in header]
    return [setting]


def _in_order(labels: set[str]) -> list[str]:
    """Sort 2 before 10 if all labels are numbers, else as text."""
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)
