"""MNIST from its idx files, gzipped or not, laid out as torchvision does."""

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Dataset, Examples
from learning.data.options import DataOptions
from learning.data.scale import scale_pixels
from learning.data.sources import SOURCES, read_bytes, require

_MOST_UNPACKED = 100_000_000  # the training images are 47 MB
# Of the 60,000 training images, on the scale from 0 to 1.
_MEAN, _DEVIATION = (0.1307,), (0.3081,)


def mnist(folder: Path | None, _seed: int, _options: DataOptions) -> Dataset:
    """Read the publisher's training images as the pool, the others as the test set."""
    root = require("mnist", folder)
    raw = root / "MNIST" / "raw"
    raw = raw if raw.is_dir() else root
    classes = tuple(str(digit) for digit in range(10))
    return Dataset("mnist", _examples(raw, "train"), _examples(raw, "t10k"), classes)


def _examples(raw: Path, part: str) -> Examples:
    pixels = _read_idx(raw / f"{part}-images-idx3-ubyte", dimensions=3)
    labels = _read_idx(raw / f"{part}-labels-idx1-ubyte", dimensions=1)
    if len(pixels) != len(labels):
        raise DataError(
            f"{raw}: {part} has {len(pixels)} images but {len(labels)} labels; "
            "fetch its two files again"
        )
    return Examples(scale_pixels(pixels[:, np.newaxis], _MEAN, _DEVIATION), labels.astype(np.int64))


def _read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """Read one idx file: two zero bytes, type 8 (byte), dimensions, big-endian sizes, values."""
    path, content = _content(path)
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        raise DataError(
            f"{path}: not an idx file of bytes in {dimensions} dimension(s); "
            f"fetch it again from {SOURCES['mnist'].publisher}"
        )
    sizes = [int(size) for size in np.frombuffer(content[4:header], dtype=">u4")]
    values = np.frombuffer(content, dtype=np.uint8, offset=header)
    if len(values) != math.prod(sizes):
        raise DataError(
            f"{path}: cut short or too long, {len(values)} values where its header says "
            f"{' × '.join(map(str, sizes))}; fetch it again from {SOURCES['mnist'].publisher}"
        )
    return values.reshape(sizes)


def _content(path: Path) -> tuple[Path, bytes]:
    if path.is_file():
        return path, read_bytes(path)
    zipped = path.with_name(path.name + ".gz")
    if not zipped.is_file():
        raise DataError(
            f"{path}: no such file, and no {zipped.name} either; "
            f"it comes from {SOURCES['mnist'].publisher}"
        )
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(read_bytes(zipped))) as file:
            content = file.read(_MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{zipped}: not a complete gzip file; fetch it again from {SOURCES['mnist'].publisher}"
        ) from error
    if len(content) > _MOST_UNPACKED:
        raise DataError(
            f"{zipped}: more than {_MOST_UNPACKED} bytes unpacked; fetch it again from "
            f"{SOURCES['mnist'].publisher}"
        )
    return zipped, content
