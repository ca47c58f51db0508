"""Find the class of each image in a table, by a number that both have."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from learning.data.examples import DataError
from learning.data.medical.series import Item
from learning.data.tables.table import Table

Key = Literal["file", "series", "accession", "study", "patient"]

# From the most to the least precise: the first that the table has is used.
_COLUMNS: dict[Key, tuple[str, ...]] = {
    "file": ("file", "filename", "path", "filepath", "image"),
    "series": ("series", "seriesinstanceuid", "seriesuid", "seriesid", "seriesnumber"),
    "accession": ("accession", "accessionnumber", "accessionno", "accessionid"),
    "study": ("study", "studyinstanceuid", "studyuid", "studyid"),
    "patient": ("patient", "patientid", "patienttoken", "patientnumber", "mrn"),
}
_SHOWN = 3
_HOW_TO_LEAVE_OUT = 'or set unlabelled = "leave-out"'


@dataclass
class Labels:
    """The class of every item, as a text; "" where it is left out."""

    classes: list[str]
    patients: list[str]
    """The table's patient of every item, "" where it does not say."""

    rows_without_image: int = 0
    problems: list[str] = field(default_factory=list)


def find_labels(
    items: Sequence[Item],
    table: Table,
    *,
    label_column: str,
    key: Key | Literal["auto"] = "auto",
    key_column: str = "",
    leave_out: bool = False,
) -> Labels:
    """Match rows and items; items without a class, or with two, are problems or left out."""
    label_name = table.find(label_column)
    if label_name is None:
        raise DataError(
            f"{table.source}: no column {label_column!r} with the class; set label-column to one "
            f"of {', '.join(table.columns)}"
        )
    key, column = _key_column(table, key, key_column)
    rows_of = _matched(items, table.texts(column), key)
    texts, patient_column = table.texts(label_name), _known_column(table, "patient")
    patients = table.texts(patient_column) if patient_column else [""] * len(table)
    found = Labels([], [])
    without, with_two = [], []
    for item, rows in zip(items, rows_of, strict=True):
        classes = sorted({texts[row] for row in rows} - {""})
        found.classes.append(classes[0] if len(classes) == 1 else "")
        found.patients.append(next((patients[row] for row in rows if patients[row]), ""))
        if not classes:
            without.append(item.name)
        elif len(classes) > 1:
            with_two.append(item.name)
    found.rows_without_image = len(set(range(len(table))) - {r for rows in rows_of for r in rows})
    if not leave_out:
        for what, names, advice in (
            ("without a label", without, "add them to the table"),
            ("with two labels", with_two, "keep one row of each"),
        ):
            if names:
                found.problems.append(
                    f"{table.source}: {len(names)} images {what} (by {key}): {_some(names)}; "
                    f"{advice}, {_HOW_TO_LEAVE_OUT}"
                )
    return found


def _key_column(table: Table, key: Key | Literal["auto"], column: str) -> tuple[Key, str]:
    if column:
        name = table.find(column)
        if name is None:
            raise DataError(
                f"{table.source}: no column {column!r}; set key-column to one of "
                f"{', '.join(table.columns)}"
            )
        if key == "auto":
            raise DataError("key-column needs label-key: file, series, accession, study or patient")
        return key, name
    for kind in _COLUMNS if key == "auto" else (key,):
        name = _known_column(table, kind)
        if name is not None:
            return kind, name
    raise DataError(
        f"{table.source}: no column that tells which image a row is about; name one of "
        f"{', '.join(table.columns)} with key-column, and what it holds with label-key "
        f"({', '.join(_COLUMNS)})"
    )


def _known_column(table: Table, key: Key) -> str | None:
    plain = {re.sub(r"[\W_]", "", name.casefold()): name for name in table.columns}
    return next((plain[name] for name in _COLUMNS[key] if name in plain), None)


def _matched(items: Sequence[Item], cells: Sequence[str], key: Key) -> list[list[int]]:
    """Return the rows of each item."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, cell in enumerate(cells):
        if cell:
            rows[_path(cell) if key == "file" else cell].append(row)
    names: Callable[[Item], list[str]] = (
        _file_names if key == "file" else lambda item: [getattr(item.header, key)]
    )
    found = [next((rows[name] for name in names(item) if name in rows), []) for item in items]
    if key != "file" and not any(found):
        return _without_zeros(items, rows, key)
    return found


def _without_zeros(items: Sequence[Item], rows: dict[str, list[int]], key: Key) -> list[list[int]]:
    """Compare numbers as spreadsheets write them, which drop the zeros in front."""
    values = {getattr(item.header, key) for item in items}
    if len({value.lstrip("0") for value in values}) != len(values):
        return [[] for _ in items]
    short = {cell.lstrip("0"): at for cell, at in rows.items()}
    return [short.get(getattr(item.header, key).lstrip("0"), []) for item in items]


def _file_names(item: Item) -> list[str]:
    """Return what a table may call an item: its path, its name, its folders."""
    if len(item.files) > 1:
        path = PurePosixPath(item.files[0].name)
        names = [file.name for file in item.files]
    else:
        path = PurePosixPath(item.files[0].name)
        names = [item.files[0].name]
    names += [path.name, path.name.removesuffix(".gz").removesuffix(".nii").removesuffix(".dcm")]
    return [*names, *(str(parent) for parent in path.parents if parent != PurePosixPath("."))]


def _path(cell: str) -> str:
    return cell.replace("\\", "/").removeprefix("./").rstrip("/")


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def class_folders(items: Sequence[Item], root: Path, *, level: int = 0) -> list[str]:
    """Return the class of each item by the folder of this level; without a table of labels."""
    folders = [PurePosixPath(item.files[0].name).parts[:-1] for item in items]
    classes = [parts[level : level + 1] for parts in folders]
    if not all(classes):
        loose = next(item.name for item, parts in zip(items, classes, strict=True) if not parts)
        raise DataError(
            f"{root}: no labels; name their table with the setting labels, or sort the images into "
            f"one folder for each class ({loose} is in none)"
        )
    return [parts[0] for parts in classes]
