"""A contact sheet: images as the model will see them."""

import io

import numpy as np
from numpy.typing import NDArray

_MOST = 64
_COLUMNS = 8


def contact_sheet(images: NDArray[np.float32], centre: float, scale: float) -> bytes:
    """Return up to 64 images, scaled back to grey values, as one PNG.

    `images` is (n, channels, [depth,] height, width); of a volume the middle slice is shown.
    """
    from PIL import Image

    chosen = images[np.unique(np.linspace(0, len(images) - 1, _MOST).astype(int))]
    if chosen.ndim == 5:
        chosen = chosen[:, :, chosen.shape[2] // 2]
    pixels = np.clip(255 * (chosen * scale + centre), 0, 255).round().astype(np.uint8)
    count, channels, height, width = pixels.shape
    columns = min(_COLUMNS, count)
    rows = -(-count // columns)
    sheet = np.zeros((rows * (height + 1) - 1, columns * (width + 1) - 1, channels), np.uint8)
    for at, image in enumerate(pixels):
        top, left = at // columns * (height + 1), at % columns * (width + 1)
        sheet[top : top + height, left : left + width] = np.moveaxis(image, 0, -1)
    file = io.BytesIO()
    Image.fromarray(sheet[..., 0] if channels == 1 else sheet).save(file, "PNG")
    return file.getvalue()
