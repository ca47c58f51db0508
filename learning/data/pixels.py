"""Decode image files to arrays of bytes."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError
from learning.data.options import ImageMode
from learning.data.sources import check_file, read_bytes

_MOST_BYTES = 256 << 20  # of a file
# A mammogram has 20 million. A file of 2 MB can be unpacked to a hundred times as many.
_MOST_PIXELS = 50_000_000
# Pillow knows others, which start programs.
_FORMATS = ("BMP", "JPEG", "PNG", "TIFF", "WEBP")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Decoded images of one size and mode."""

    pixels: NDArray[np.uint8]
    """(n, channels, size, size), read-only because it is cached."""

    digests: tuple[str, ...]
    """Equal for files with equal bytes."""


def read_images(paths: Sequence[Path], *, size: int, mode: ImageMode) -> Pictures:
    """Decode image files; the last ones are cached, since every simulated hospital reads them.

    With mode auto the images are grey if all of them are, else rgb.
    """
    keys, problems = [], []
    for path in paths:
        try:
            found = check_file(path, _MOST_BYTES)
            # Modification time and size are part of the cache key.
            keys.append((str(path), found.st_mtime_ns, found.st_size))
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError(*problems)
    return _read_images(tuple(keys), size, mode)


@lru_cache(maxsize=2)
def _read_images(keys: tuple[tuple[str, int, int], ...], size: int, mode: ImageMode) -> Pictures:
    images, digests, problems = [], [], []
    for name, _modified, _length in keys:
        try:
            content = read_bytes(Path(name), _MOST_BYTES)
            images.append(decode(content, name, size, mode))
            digests.append(hashlib.sha256(content).hexdigest())
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError(*problems)
    return Pictures(stack(images), tuple(digests))


def decode(content: bytes, name: str, size: int, mode: ImageMode) -> NDArray[np.uint8]:
    """Decode one image to (channels, size, size); the aspect ratio is not kept, as in the paper."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            # Lets a JPEG decoder skip detail far below the requested size: the published X-rays
            # are 10 times as large as needed.
            image.draft(None, (2 * size, 2 * size))
            if image.width * image.height > _MOST_PIXELS:
                raise Image.DecompressionBombError
            image.load()
            if image.mode in ("I", "F") or image.mode.startswith("I;"):
                raise DataError(
                    f"{name}: more than 8 bits per pixel; save it as 8-bit grey, with the "
                    "window a radiologist would choose"
                )
            grey = mode == "grey" or (mode == "auto" and image.mode in ("1", "L", "LA"))
            converted = image.convert("L" if grey else "RGB")
            if converted.size != (size, size):
                converted = converted.resize((size, size), Image.Resampling.BILINEAR)
            pixels = np.asarray(converted, dtype=np.uint8)
    except DataError:
        raise
    except Image.DecompressionBombError as error:
        raise DataError(f"{name}: more than {_MOST_PIXELS:,} pixels; save it smaller") from error
    except Exception as error:
        # PIL's decoders raise many kinds of errors on damaged files.
        raise DataError(f"{name}: not a readable image; replace or remove it") from error
    if grey:
        return pixels[np.newaxis]
    # Contiguous in this order: a network may call `view` on its images.
    return np.ascontiguousarray(np.moveaxis(pixels, -1, 0))


def stack(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Stack images of one size into a read-only array; grey among rgb images become rgb."""
    channels = max(len(image) for image in images)
    shape = (channels, *images[0].shape[1:])
    stacked = np.stack([np.broadcast_to(image, shape) for image in images])
    stacked.setflags(write=False)
    return stacked
