"""Read a Parquet file to a table."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from learning.data.examples import DataError
from learning.data.extras import import_extra
from learning.data.sources import check_file
from learning.data.tables.csv_table import check_names
from learning.data.tables.table import Cells, Table

_MOST_BYTES = 4 << 30
_MOST_CELLS = 500_000_000


def read_parquet(path: Path) -> Table:
    """Return all columns; rows are counted from 1. Nested columns are refused by name."""
    parquet = import_extra("pyarrow.parquet", "tables", "reading Parquet files")
    types = import_extra("pyarrow.types", "tables", "reading Parquet files")
    check_file(path, _MOST_BYTES)
    try:
        # This file only: a path would be searched for partitions.
        with path.open("rb") as stream:
            file = parquet.ParquetFile(stream)
            rows, count = file.metadata.num_rows, file.metadata.num_columns
            if rows * count > _MOST_CELLS:
                raise DataError(f"{path}: {rows} × {count} cells, more than {_MOST_CELLS:,}")
            data = file.read()
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path}: not a readable Parquet file; write it again") from error
    if not rows:
        raise DataError(f"{path}: no rows in it")
    names = check_names(path, list(data.column_names))
    nested = [n for n, field in zip(names, data.schema, strict=True) if types.is_nested(field.type)]
    if nested:
        raise DataError(
            f"{path}: column {nested[0]!r} holds lists or structures; select its parts as columns"
        )
    columns = {name: _cells(data.column(at), types) for at, name in enumerate(names)}
    return Table(str(path), columns, np.arange(1, rows + 1, dtype=np.int64))


def _cells(column: Any, types: Any) -> Cells:
    kind = column.type
    if types.is_dictionary(kind):
        column = column.combine_chunks().dictionary_decode()
        kind = column.type
    values = column.to_pylist()
    # A whole number of 17 digits is a patient's or an accession number: as text it stays exact.
    if (
        types.is_floating(kind)
        or types.is_decimal(kind)
        or (types.is_integer(kind) and all(v is None or abs(v) < 2**53 for v in values))
    ):
        return np.array([math.nan if value is None else float(value) for value in values])
    if types.is_boolean(kind):
        return ["" if value is None else "yes" if value else "no" for value in values]
    if types.is_temporal(kind):
        return ["" if value is None else value.isoformat() for value in values]
    return ["" if value is None else str(value).strip() for value in values]
