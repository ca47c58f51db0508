"""Spreadsheets and Parquet files are the same tables as csv files."""

import datetime
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow
import pyarrow.parquet
import pytest

from learning.data import extras
from learning.data.extras import MissingExtra
from learning.data.tables import parquet
from learning.data.tables.encode import encode
from learning.data.tables.files import read_table
from learning.data.tables.table import Table
from protocol.codebook import Codebook

Refusal = Callable[[Callable[[], object]], str]
COLUMNS: dict[str, list[Any]] = {
    "Größe": [1.75, None, 1.8],
    "age": [63, 41, None],
    "sex": ["m", None, "w"],
    "smoker": [True, False, None],
    "admitted": [datetime.date(2024, 2, 29), None, datetime.date(2020, 1, 1)],
}
CODEBOOK = """
classes = ["a", "b"]
[[columns]]
kind = "number"
name = "Größe"
range = [1.0, 2.5]
centre = 1.7
scale = 0.1
[[columns]]
kind = "number"
name = "age"
range = [0.0, 120.0]
centre = 60.0
scale = 10.0
[[columns]]
kind = "category"
name = "sex"
levels = ["m", "w"]
[[columns]]
kind = "yes-no"
name = "smoker"
"""


def write_csv(folder: Path) -> Path:
    path = folder / "patients.csv"
    rows = ["Größe;age;sex;smoker;admitted", "1,75;63;m;ja;2024-02-29", ";41;;nein;"]
    path.write_bytes("\r\n".join([*rows, "1,8;;w;;2020-01-01", ""]).encode("cp1252"))
    return path


def write_xlsx(folder: Path) -> Path:
    path = folder / "patients.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append([*COLUMNS])
    for row in zip(*COLUMNS.values(), strict=True):
        sheet.append(list(row))
    book.save(path)
    return path


def write_parquet(folder: Path) -> Path:
    path = folder / "patients.parquet"
    pyarrow.parquet.write_table(pyarrow.table(COLUMNS), path)
    return path


WRITERS = {".csv": write_csv, ".xlsx": write_xlsx, ".parquet": write_parquet}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_features(suffix: str, tmp_path: Path) -> None:
    table = read_table(WRITERS[suffix](tmp_path))
    assert list(table.columns) == list(COLUMNS)
    assert table.texts("admitted") == ["2024-02-29", "", "2020-01-01"]
    features = encode(table, Codebook.from_toml(CODEBOOK)).features
    expected = [
        # Größe, missing; age, missing; m, w, other, missing; smoker, missing
        [0.5, 0, 0.3, 0, 1, 0, 0, 0, 1, 0],
        [0.0, 1, -1.9, 0, 0, 0, 0, 1, -1, 0],
        [1.0, 0, 0.0, 1, 0, 1, 0, 0, 0, 1],
    ]
    np.testing.assert_allclose(features, np.array(expected), atol=1e-6)


def test_lines_are_those_a_user_sees(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    for row in ([], ["a", "b"], [1, "x"], [None, None], [2, "y"]):
        book.active.append(row)
    book.create_sheet("notes").append(["never read"])
    book.save(path)
    table = read_table(path)
    assert table.lines.tolist() == [3, 5]
    assert table.texts("a") == ["1", "2"]


def test_long_numbers_stay_exact(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    numbers = [2**53 + 1, 12345678901234567]
    pyarrow.parquet.write_table(pyarrow.table({"accession": numbers}), path)
    assert read_table(path).texts("accession") == [str(number) for number in numbers]


def test_categories_and_decimals_of_parquet_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    levels = pyarrow.array(["x", None, "x"]).dictionary_encode()
    amounts = pyarrow.array([Decimal("1.50"), Decimal(2), None], pyarrow.decimal128(5, 2))
    pyarrow.parquet.write_table(pyarrow.table({"level": levels, "amount": amounts}), path)
    table = read_table(path)
    assert table.texts("level") == ["x", "", "x"]
    assert table.texts("amount") == ["1.5", "2", ""]


def test_nested_columns_are_refused_by_name(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"ok": [1], "codes": [[1, 2]]}), path)
    assert "column 'codes' holds lists or structures" in refusal(lambda: read_table(path))


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet", ".ods", ".xls"])
def test_damaged_files_are_named_without_their_content(
    suffix: str, tmp_path: Path, refusal: Refusal
) -> None:
    path = tmp_path / f"a{suffix}"
    for content in (b"", b"PAR1 secret", b"PK\x03\x04 secret"):
        path.write_bytes(content)
        message = refusal(lambda: read_table(path))
        assert message.startswith(f"{path}: not a readable ")
        assert "secret" not in message


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet"])
def test_pipes_are_refused(suffix: str, tmp_path: Path, refusal: Refusal) -> None:
    os.mkfifo(tmp_path / f"a{suffix}")
    assert "a pipe instead of a file" in refusal(lambda: read_table(tmp_path / f"a{suffix}"))


def test_a_table_of_too_many_cells_is_not_read(
    tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_MOST_CELLS", 10)
    assert "3 × 5 cells, more than 10" in refusal(lambda: read_table(write_parquet(tmp_path)))


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet"])
def test_a_missing_extra_is_named_with_its_command(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = WRITERS[suffix](tmp_path)

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[tables\]'") as caught:
        _: Table = read_table(path)
    assert "needs the package" in str(caught.value)
