"""Csv files as hospitals save them are read without being told how."""

from pathlib import Path

import pytest

from learning.data import DataError
from learning.data.tables.files import find_table, read_table
from learning.data.tables.table import Table

ROWS = [["Größe", "Befund", "Kreatinin"], ["178", "gutartig", "1.5"], ["", "k.A.", "1234.5"]]


def contents(table: Table) -> list[list[str]]:
    return [list(table.columns), *map(list, zip(*table.columns.values(), strict=True))]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_encoding_separator_and_decimal_comma_are_recognised(
    encoding: str, separator: str, tmp_path: Path
) -> None:
    german = [ROWS[0], ["178", "gutartig", "1,5"], ["", "k.A.", "1.234,5"]]
    path = tmp_path / "Patienten Übersicht.csv"
    path.write_bytes("\r\n".join(map(separator.join, german)).encode(encoding))
    table = read_table(path)
    assert contents(table) == ROWS
    assert table.lines.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ('a,b\n"1,234.5","1,5"\n', ["1234.5", "1.5"]),  # thousands, and a decimal comma in quotes
        ('a,b\n"Doe, Jane",1.5\n', ["Doe, Jane", "1.5"]),
        ("sep=;\na;b\n1,5;2\n", ["1.5", "2"]),
        ("a;b;;\n-,5;1,5e-3;;\n;;;\n", ["-.5", "1.5e-3"]),  # a spreadsheet's empty rest
    ],
)
def test_odd_but_usual_files(text: str, cells: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    assert contents(read_table(path)) == [["a", "b"], cells]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b\n1\n1,2,3\nSmith,2\n", ", line 2: not 2 cells, as many as the header has (2 lines)"),
        (b"a,A ,a\n1,2,3\n", ": column 'a' is there twice"),
        (b"a,b\n", ": no examples in it"),
        (b"", ": no header"),
        (b"a,b\n\x81,\x8d\n", ": neither UTF-8 nor Windows-1252 text"),
        (b'a,b\n"' + b"x" * 200_000 + b'",1\n', ", line 2: field larger than field limit"),
    ],
)
def test_what_is_no_table_is_refused_without_its_content(
    content: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert f"{path}{says}" in str(caught.value)
    assert "Smith" not in str(caught.value)


def test_the_only_table_of_a_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not me")
    with pytest.raises(DataError, match="0 tables where exactly one is expected"):
        find_table(tmp_path)
    (tmp_path / "patients.TSV").write_text("a\tb\n1\t2\n")
    assert find_table(tmp_path).name == "patients.TSV"
    with pytest.raises(DataError, match="not a table; expected a file that ends in"):
        read_table(tmp_path / "scan.dcm")
