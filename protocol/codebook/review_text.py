"""A codebook as text, as the people of a study review it."""

from .codebook import Codebook
from .columns import CategoryColumn, Column, NumberColumn
from .images import Images

_SHOWN_COLUMNS = 100
_HEADER = ("column", "kind", "unit", "range or levels", "scaled")


def codebook_text(codebook: Codebook) -> str:
    """Return classes, columns or images, and the fingerprint, in lines."""
    lines = [
        f"codebook     {codebook.title or '(no title)'}",
        f"classes      {', '.join(codebook.classes)}",
    ]
    if codebook.images is not None:
        lines.append(f"images       {_images(codebook.images)}")
    else:
        lines += [f"label        in the column {codebook.label}", ""]
        rows = [_HEADER, *map(_row, codebook.columns[:_SHOWN_COLUMNS])]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        for row in rows:
            pairs = zip(row, widths, strict=True)
            lines.append("  ".join(f"{cell:{width}}" for cell, width in pairs).rstrip())
        if (more := len(codebook.columns) - _SHOWN_COLUMNS) > 0:
            lines.append(f"and {more} more columns")
    return "\n".join([*lines, "", "fingerprint of this codebook:", f"    {codebook.fingerprint}"])


def _row(column: Column) -> tuple[str, str, str, str, str]:
    match column:
        case NumberColumn():
            low, high = column.range
            scaled = f"(value - {column.centre:g}) / {column.scale:g}"
            return column.name, column.kind, column.unit, f"{low:g} to {high:g}", scaled
        case CategoryColumn():
            return column.name, column.kind, "", ", ".join(column.levels), "one of each"
        case _:
            return column.name, column.kind, "", "yes, no", "1, -1"


def _images(images: Images) -> str:
    pair = images.window or images.percentiles
    limits = f" {pair[0]:g} to {pair[1]:g}" if pair else ""
    spacing = images.spacing and f", spacing {' × '.join(f'{mm:g}' for mm in images.spacing)} mm"
    size = " × ".join(map(str, images.size))
    channels = "grey" if images.channels == 1 else "rgb"
    return f"{images.view}, {size}, {channels}, {images.intensity}{limits}{spacing or ''}"
