"""Figures that a notebook shows by themselves, without pyplot."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that is shown as an image where it is the value of a cell."""

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png")
        return image.getvalue()
