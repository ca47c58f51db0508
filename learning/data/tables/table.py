"""A table in memory, as every reader of a file returns it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError
from protocol.codebook import name_key

Cells = NDArray[np.float64] | list[str]
"""Numbers, NaN where a cell is empty; or texts as in the file, "" where it is empty.

Numbers in texts have a decimal point and no thousands separators. Dates are ISO 8601, truth
values `yes` and `no`.
"""


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of one file, by name, in the file's order."""

    source: str
    """The file, as messages name it."""

    columns: dict[str, Cells]
    """All of one length. Names are as in the file, without spaces around them."""

    lines: NDArray[np.int64]
    """The line (of a spreadsheet: the row) of the file that each row comes from."""

    def __post_init__(self) -> None:
        for name, cells in self.columns.items():
            if len(cells) != len(self):
                raise DataError(
                    f"{self.source}: column {name!r} has {len(cells)} cells, not {len(self)}"
                )

    def __len__(self) -> int:
        return len(self.lines)

    def find(self, name: str) -> str | None:
        """Return the name of a column as it is here: capitals don't count if that is unique."""
        if name in self.columns:
            return name
        alike = [own for own in self.columns if name_key(own) == name_key(name)]
        return alike[0] if len(alike) == 1 else None

    def texts(self, name: str) -> list[str]:
        """Return a column's cells as texts; whole numbers without a decimal point."""
        cells = self.columns[name]
        if isinstance(cells, list):
            return [cell.strip() for cell in cells]
        return ["" if np.isnan(value) else f"{value:.17g}" for value in cells.tolist()]
