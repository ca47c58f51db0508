"""Read the first sheet of an Excel file to a table."""

import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np

from learning.data.examples import DataError
from learning.data.extras import import_extra
from learning.data.sources import check_file
from learning.data.tables.csv_table import check_names, without_empty
from learning.data.tables.table import Cells, Table

_MOST_BYTES = 256 << 20


def read_spreadsheet(path: Path) -> Table:
    """Return all columns of the first sheet; its first row that is not empty names them."""
    calamine = import_extra("python_calamine", "tables", "reading spreadsheets")
    check_file(path, _MOST_BYTES)
    try:
        sheet = calamine.CalamineWorkbook.from_path(path).get_sheet_by_index(0)
        rows: list[list[Any]] = sheet.to_python(skip_empty_area=False)
    except Exception as error:
        # Its text may quote cells.
        raise DataError(f"{path}: not a readable spreadsheet; save it again as xlsx") from error
    numbered = [(at, row) for at, row in enumerate(rows, start=1) if any(map(_text, row))]
    if len(numbered) < 2:
        raise DataError(f"{path}: no examples in it; expected a header and a row for each")
    (_, header), *body = numbered
    names = check_names(path, [_text(cell) for cell in header])
    columns: dict[str, Cells] = {
        name: _cells([row[at] if at < len(row) else "" for _, row in body])
        for at, name in enumerate(names)
    }
    lines = np.array([at for at, _ in body], dtype=np.int64)
    return Table(str(path), without_empty(columns), lines)


def _cells(values: list[Any]) -> Cells:
    is_number = [type(value) in (int, float) for value in values]
    is_empty = [not _text(value) for value in values]
    if any(is_number) and all(n or e for n, e in zip(is_number, is_empty, strict=True)):
        return np.array(
            [value if n else math.nan for value, n in zip(values, is_number, strict=True)], float
        )
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float() if value.is_integer():
            return str(int(value))
        case datetime.date() | datetime.time():  # a datetime is a date
            return value.isoformat()
    return str(value).strip()
