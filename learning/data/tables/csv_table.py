"""Read a csv file, in any dialect, to a table."""

from collections import Counter
from pathlib import Path

import numpy as np

from learning.data.examples import DataError
from learning.data.tables.dialect import CsvRows
from learning.data.tables.table import Cells, Table

_MOST_COLUMNS = 1_000_000


def read_csv(path: Path) -> Table:
    """Return all columns as texts, with decimal points; DataError lists every bad line."""
    rows = CsvRows.open(path)
    names = check_names(path, next(rows, []))
    cells: list[list[str]] = [[] for _ in names]
    lines: list[int] = []
    ragged: list[int] = []
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue  # spreadsheets leave lines of separators behind
        if len(row) != len(names):
            ragged.append(rows.line)
            continue
        lines.append(rows.line)
        for column, cell in zip(cells, row, strict=True):
            column.append(rows.number(cell))
    if ragged:
        more = f" ({len(ragged)} lines)" if len(ragged) > 1 else ""
        raise DataError(
            f"{path}, line {ragged[0]}: not {len(names)} cells, as many as the header has{more}; "
            "correct it"
        )
    if not lines:
        raise DataError(f"{path}: no examples in it; expected a header and a line for each")
    columns: dict[str, Cells] = dict(zip(names, cells, strict=True))
    return Table(str(path), without_empty(columns), np.array(lines, dtype=np.int64))


def check_names(path: Path, header: list[str]) -> list[str]:
    """Return the columns' names: those without one get a number, and no two are the same."""
    names = [name.strip() or f"(column {at})" for at, name in enumerate(header, start=1)]
    if not any(name.strip() for name in header):
        raise DataError(f"{path}: no header; the first line must name the columns")
    if len(names) > _MOST_COLUMNS:
        raise DataError(f"{path}: {len(names)} columns, more than {_MOST_COLUMNS}; leave some out")
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f"{path}: column {twice[0]!r} is there twice; rename or remove one")
    return names


def without_empty(columns: dict[str, Cells]) -> dict[str, Cells]:
    """Leave out columns without a name and without content, as spreadsheets have at the right."""
    return {
        name: cells
        for name, cells in columns.items()
        if not (name.startswith("(column ") and isinstance(cells, list) and not any(cells))
    }
