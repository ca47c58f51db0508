"""Read a table from a file, by its suffix."""

from collections.abc import Callable
from pathlib import Path

from learning.data.examples import DataError
from learning.data.sources import require
from learning.data.tables.csv_table import read_csv
from learning.data.tables.parquet import read_parquet
from learning.data.tables.spreadsheet import read_spreadsheet
from learning.data.tables.table import Table

# Each imports its library when it is called.
READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".txt": read_csv,
    ".parquet": read_parquet,
    ".xls": read_spreadsheet,
    ".xlsx": read_spreadsheet,
    ".ods": read_spreadsheet,
}


def read_table(path: Path) -> Table:
    """Read one file; DataError if no reader knows its suffix."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path}: not a table; expected a file that ends in {', '.join(sorted(READERS))}"
        )
    return reader(path)


def find_table(place: Path | None) -> Path:
    """Return the file itself, or the only table in a folder."""
    place = require("csv", place)
    if place.is_file():
        return place
    suffixes = READERS.keys() - {".txt"}  # more often notes
    found = sorted(path for path in place.iterdir() if path.suffix.lower() in suffixes)
    if len(found) != 1:
        raise DataError(
            f"{place}: {len(found)} tables where exactly one is expected; let data-dir name the "
            "file itself"
        )
    return found[0]
