"""CIFAR-10: the publisher's binary version, or JPEG copies in a zip file.

The publisher's Python version is refused: it is a pickle, which can run any code.
"""

import zipfile
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Dataset, Examples
from learning.data.options import DataOptions
from learning.data.pixels import decode, stack
from learning.data.scale import scale_pixels
from learning.data.sources import check_file, read_bytes, require

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

# Of the 50,000 training images, on the scale from 0 to 1.
_MEAN, _DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

_SIZE = 32
_RECORD = 1 + 3 * _SIZE * _SIZE
_MOST_UNPACKED = 1 << 30  # 60,000 images of 3 kB are a fifth of it

_Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def cifar10(folder: Path | None, _seed: int, options: DataOptions) -> Dataset:
    """Read the publisher's training images (or a part of them) as the pool, and its test set."""
    root = require("cifar10", folder)
    binary = root / "cifar-10-batches-bin"
    binary = binary if binary.is_dir() else root
    zips = sorted(path for path in root.iterdir() if path.suffix.lower() == ".zip")
    if any(binary.glob("*_batch*.bin")):
        train = _read_binary([binary / f"data_batch_{number}.bin" for number in range(1, 6)])
        test = _read_binary([binary / "test_batch.bin"])
    elif len(zips) == 1:
        stat = check_file(zips[0])
        train, test = _read_zip(zips[0], stat.st_mtime_ns, stat.st_size)
    else:
        raise DataError(_nothing_found(root, zips))

    def examples(part: _Part) -> Examples:
        pixels = shrink(part[0], options.image_size or _SIZE)
        return Examples(scale_pixels(pixels, _MEAN, _DEVIATION), part[1])

    return Dataset("cifar10", examples(train), examples(test), CLASSES)


def shrink(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return the means of square blocks of pixels: images of `size` × `size`."""
    side = images.shape[-1]
    if size > side or side % size:
        raise DataError(
            f"image-size of cifar10 must divide {side}, got {size}: use 16 or 8, or 0 for {side}"
        )
    block = side // size
    blocks = images.reshape(*images.shape[:-2], size, block, size, block)
    return images if block == 1 else np.rint(blocks.mean(axis=(-3, -1))).astype(np.uint8)


def _nothing_found(root: Path, zips: list[Path]) -> str:
    fetch = "fetch the binary version (cifar-10-binary.tar.gz) from the University of Toronto"
    if zips:
        return f"{root}: {len(zips)} zip files; leave the one with train/ and test/ images there"
    if any(root.glob("cifar-10-binary.tar*")):
        return f"{root}: cifar-10-binary.tar.gz is still packed; unpack it there"
    if any(root.glob("cifar-10-batches-py")) or any(root.glob("cifar-10-python*")):
        return f"{root}: only the Python version, a pickle, which is never opened; {fetch}"
    return f"{root}: neither cifar-10-batches-bin/ nor a zip of JPEGs; {fetch} and unpack it there"


def _read_binary(paths: list[Path]) -> _Part:
    """Read records of a label byte and 3 × 32 × 32 pixel bytes."""
    records = []
    for path in paths:
        content = np.frombuffer(read_bytes(path), dtype=np.uint8)
        if not len(content) or len(content) % _RECORD:
            raise DataError(
                f"{path}: {len(content)} bytes are not whole records of {_RECORD}; "
                "fetch the binary version of CIFAR-10 again"
            )
        records.append(content.reshape(-1, _RECORD))
    rows = np.concatenate(records)
    return rows[:, 1:].reshape(-1, 3, _SIZE, _SIZE), rows[:, 0].astype(np.int64)


@lru_cache(maxsize=1)
def _read_zip(path: Path, _modified: int, _size: int) -> tuple[_Part, _Part]:
    """Decode train/<class>/*.jpg and test/<class>/*.jpg; cached for the other hospitals."""
    try:
        with zipfile.ZipFile(path) as archive:
            # An archive is unpacked no further than the sizes that it declares.
            if sum(entry.file_size for entry in archive.infolist()) > _MOST_UNPACKED:
                raise DataError(
                    f"{path}: would take more than {_MOST_UNPACKED} bytes unpacked; fetch it again"
                )
            content = {name: archive.read(name) for name in sorted(archive.namelist())}
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError) as error:
        raise DataError(f"{path}: not a readable zip file; fetch it again") from error

    def part(which: str) -> _Part:
        images, labels = [], []
        for name in content:
            match name.split("/"):
                case [top, class_name, file] if top == which and class_name in CLASSES and file:
                    images.append(decode(content[name], f"{path}: {name}", _SIZE, "rgb"))
                    labels.append(CLASSES.index(class_name))
        if not images:
            raise DataError(f"{path}: no {which}/<class>/ images in it; fetch it again")
        return stack(images), np.array(labels, dtype=np.int64)

    return part("train"), part("test")
