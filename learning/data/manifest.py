"""Read the manifest.csv of an image folder: which images belong together."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from learning.data.examples import DataError
from learning.data.partition.groups import GROUP_COLUMNS
from learning.data.sources import read_text


def manifest_columns(root: Path, keys: Sequence[str], group_column: str) -> list[list[str]]:
    """Return the manifest's grouping columns, each with a (possibly empty) value per image.

    With `auto` these are all columns with a known name; columns and manifest may be missing.
    """
    path = root / "manifest.csv"
    if not path.is_file():
        if group_column == "auto":
            return []
        raise DataError(f"{path}: no such file, but group-column {group_column!r} is read from it")
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), restval="")
    header = [name for name in reader.fieldnames or () if name]
    columns = [name for name in GROUP_COLUMNS if name in header]
    if group_column != "auto":
        if group_column not in header:
            raise DataError(
                f"{path}: no column {group_column!r}; set group-column to one of "
                f"{', '.join(header)}, or to none"
            )
        columns = [group_column]
    if not columns:
        return []
    if "file" not in header:
        raise DataError(f"{path}: no column 'file' with each image's path; add it")

    row_of = _match(list(reader), set(keys))
    unlisted = [key for key in keys if key not in row_of]
    if unlisted:
        # Assuming a group of its own could put one patient into train and test.
        raise DataError(
            f"{path}: no row for {unlisted[0]} ({len(unlisted)} such images); add them, or set "
            "group-column to none"
        )
    return [[row_of[key][column].strip() for key in keys] for column in columns]


def _match(rows: list[dict[str, str]], keys: set[str]) -> dict[str, dict[str, str]]:
    """Find each row's image: `file` is its path, or its name with `label` and `split` beside it."""
    row_of = {}
    for row in rows:
        name = row["file"].replace("\\", "/")
        split, label = row.get("split", ""), row.get("label", "")
        for key in (f"{split}/{label}/{name}", f"{label}/{name}", f"{split}/{name}", name):
            if key in keys:
                row_of[key] = row
                break
    return row_of
