"""Show a codebook, as the hospital's operator reviews it."""

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from operation.terminal import console, echo

if TYPE_CHECKING:
    from protocol.codebook import Codebook, Column

_SHOWN_COLUMNS = 100


def show_codebook(codebook: "Codebook") -> None:
    """Print classes, columns or images, and the fingerprint."""
    echo(f"codebook     {codebook.title or '(no title)'}")
    echo(f"classes      {', '.join(codebook.classes)} (in the column {codebook.label})")
    if codebook.images is not None:
        images = codebook.images
        echo(
            f"images       {images.view}, {'×'.join(map(str, images.size))}, "
            f"{images.channels} channel{'s' * (images.channels > 1)}, {_intensity(codebook)}"
        )
    else:
        table = Table("column", "kind", "unit", "range or levels", "scaled", box=None)
        for column in codebook.columns[:_SHOWN_COLUMNS]:
            table.add_row(*map(Text, _row(column)))
        console().print(table)
        if (more := len(codebook.columns) - _SHOWN_COLUMNS) > 0:
            echo(f"and {more} more columns")
    echo(f"\nfingerprint of this codebook:\n    {codebook.fingerprint}\n")


def _row(column: "Column") -> tuple[str, str, str, str, str]:
    match column.kind:
        case "number":
            low, high = column.range
            scaled = f"(value - {column.centre:g}) / {column.scale:g}"
            return column.name, column.kind, column.unit, f"{low:g} to {high:g}", scaled
        case "category":
            return column.name, column.kind, "", ", ".join(column.levels), ""
        case _:
            return column.name, column.kind, "", "yes, no", ""


def _intensity(codebook: "Codebook") -> str:
    images = codebook.images
    pair = images and (images.window or images.percentiles)
    name = images.intensity if images else ""
    return f"{name} {pair[0]:g} to {pair[1]:g}" if pair else name
