"""The dialects in which hospitals save csv files, recognised without being told.

Encoding UTF-8, UTF-16 or Windows-1252; cells separated by comma, semicolon, tab or bar; numbers
with a decimal point or a decimal comma.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from learning.data.examples import DataError
from learning.data.sources import read_bytes

_MOST_BYTES = 4 << 30
_CHUNK = 1 << 20
_SEPARATORS = (",", ";", "\t", "|")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_QUOTED = re.compile(r'"[^"]*"')
# Excel writes the separator before the header.
_SEPARATOR_LINE = re.compile(r"sep=(.)\s*", re.IGNORECASE)
_COMMA_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)
_DOT_THOUSANDS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)


@dataclass
class CsvRows:
    """The rows of a csv file, cell by cell as text; `line` is the last one that was read."""

    path: Path
    separator: str
    line: int
    _reader: Iterator[list[str]]
    _before: int

    @staticmethod
    def open(path: Path) -> "CsvRows":
        data = read_bytes(path, _MOST_BYTES)
        encoding = _encoding(path, data)
        text = io.TextIOWrapper(io.BytesIO(data), encoding=encoding, newline="")
        first = text.readline()
        before = 0
        if match := _SEPARATOR_LINE.fullmatch(first):
            separator, before = match[1], 1
        else:
            separator = _separator(first)
            text.seek(0)
        reader = csv.reader(text, delimiter=separator)
        return CsvRows(path, separator, 0, reader, before)

    def __iter__(self) -> "CsvRows":
        return self

    def __next__(self) -> list[str]:
        try:
            row = next(self._reader)
        except csv.Error as error:
            raise DataError(f"{self.path}, line {self._line()}: {error}; correct it") from error
        finally:
            self.line = self._line()
        return row

    def _line(self) -> int:
        return self._before + int(getattr(self._reader, "line_num"))  # noqa: B009 (not typed)

    def number(self, cell: str) -> str:
        """Return a cell with a decimal point if it is a number with a comma, else as it is."""
        if "," not in cell:
            return cell
        cell = cell.strip()
        if _DOT_THOUSANDS.fullmatch(cell):
            return cell.replace(".", "").replace(",", ".")
        if self.separator == "," and _COMMA_THOUSANDS.fullmatch(cell):
            return cell.replace(",", "")
        return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell


def _encoding(path: Path, data: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return encoding
    for encoding in ("utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            # In pieces: decoded at once, a large file would not fit into memory.
            for start in range(0, len(data), _CHUNK):
                decoder.decode(data[start : start + _CHUNK])
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            continue
        return encoding
    raise DataError(f"{path}: neither UTF-8 nor Windows-1252 text; save it as csv in UTF-8")


def _separator(header: str) -> str:
    bare = _QUOTED.sub("", header)
    return max(_SEPARATORS, key=bare.count)  # of equals the first: a comma
