"""A user's own table: one csv file with a line for each example, numbers and a label."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Dataset, Examples
from learning.data.options import DataOptions
from learning.data.partition.groups import GROUP_COLUMNS, set_apart, unite
from learning.data.scale import standardise
from learning.data.sources import read_text, require

_SHOWN_LINES = 5


def csv_file(folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read the file `folder`, or the only csv file in it; standardised over the training pool.

    Features are ordered by column name, so that hospitals with the same columns in another order
    train the same model.
    """
    path = _only_csv(require("csv", folder))
    table = _read(path)
    grouping = _group_columns(table, options.group_column)
    hospital_column = [options.hospital_column] if options.hospital_column else []
    for setting, columns in (
        ("label-column", [options.label_column]),
        ("hospital-column", hospital_column),
        ("group-column", grouping),
    ):
        for column in columns:
            table.require(column, setting)

    # A patient's number is never a feature, even when patients need not stay together.
    others = {options.label_column, *hospital_column, *grouping, *GROUP_COLUMNS}
    names = sorted(set(table.header) - others)
    if not names:
        raise DataError(f"{path}: no columns besides {', '.join(table.header)}; add features")
    values = np.array([table.numbers(name) for name in names], dtype=np.float64).T
    found = set(table.filled(options.label_column)) - {""}
    classes = options.classes or tuple(_in_order(found))
    labels = table.labels(options.label_column, classes)
    groups = unite(*[table.column(name) for name in grouping]) if grouping else None
    hospitals = (
        np.array(table.filled(hospital_column[0]), dtype=np.str_) if hospital_column else None
    )
    table.problems.raise_if_any()
    if len(classes) < 2:
        raise DataError(
            f"{path}: only one class in column {options.label_column!r}; name all of the study's "
            "classes with the setting classes"
        )

    pool, test = set_apart(len(labels), groups, options.test_fraction, seed)
    features = standardise(values, pool) if options.standardise else values.astype(np.float32)
    examples = Examples(features, labels, groups, hospitals)
    return Dataset("csv", examples.take(pool), examples.take(test), classes)


class _Problems:
    """What is wrong in which lines of a file, to be reported all at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[str, dict[int, None]] = {}  # by text, in order and without repetition

    def add(self, line: int, text: str) -> None:
        self._lines.setdefault(text, {})[line] = None

    def raise_if_any(self) -> None:
        if self._lines:
            raise DataError(*(self._in_words(text, list(at)) for text, at in self._lines.items()))

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
    """The cells of a file. Messages name a cell's position, never its value: it may be private."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    problems: _Problems

    def require(self, column: str, setting: str) -> None:
        if column not in self.header:
            raise DataError(
                f"{self.path}: no column {column!r}; set {setting} to one of its "
                f"comma-separated columns: {', '.join(self.header)}"
            )

    def column(self, name: str) -> list[str]:
        at = self.header.index(name)
        return [row[at].strip() for row in self.rows]

    def filled(self, name: str) -> list[str]:
        cells = self.column(name)
        for row, cell in enumerate(cells):
            if not cell:
                self._add(row, name, "is empty; fill it or remove the line")
        return cells

    def numbers(self, name: str) -> list[float]:
        numbers = []
        for row, cell in enumerate(self.filled(name)):
            try:
                number = float(cell)
            except ValueError:
                number = math.nan
            if cell and not math.isfinite(number):
                self._add(row, name, "is not a number; correct it or remove the column")
            numbers.append(number)
        return numbers

    def labels(self, name: str, classes: Sequence[str]) -> NDArray[np.int64]:
        position = {label: index for index, label in enumerate(classes)}
        cells = self.column(name)
        for row, cell in enumerate(cells):
            if cell and cell not in position:
                self._add(row, name, f"is none of the classes {', '.join(classes)}")
        return np.array([position.get(cell, -1) for cell in cells], dtype=np.int64)

    def _add(self, row: int, column: str, what: str) -> None:
        self.problems.add(self.lines[row], f"column {column!r} {what}")


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


def _read(path: Path) -> _Table:
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    header, rows, lines = [], [], []
    problems = _Problems(path)
    try:
        header = [name.strip() for name in next(reader, [])]
        if len(header) == 1 and ";" in header[0]:
            raise DataError(
                f"{path}: separated by semicolons; save it with commas between the cells, and "
                "numbers with a decimal point"
            )
        for row in reader:
            if len(row) not in (0, len(header)):
                text = f"{len(row)} cells where the header has {len(header)}; correct the line"
                problems.add(reader.line_num, text)
            elif row:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}; correct the line") from error
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"{path}: column {twice[0]!r} is there twice; rename or remove one")
    if not rows:
        problems.raise_if_any()
        raise DataError(f"{path}: no examples in it; expected a header and a line for each")
    return _Table(path, header, rows, lines, problems)


def _group_columns(table: _Table, setting: str) -> list[str]:
    if setting == "none":
        return []
    if setting == "auto":
        return [name for name in GROUP_COLUMNS if name in table.header]
    return [setting]


def _in_order(labels: set[str]) -> list[str]:
    """Sort 2 before 10 if all labels are numbers, else as text."""
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)
