"""DICOM and NIfTI images without a class, to predict."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError
from learning.data.medical.cache import ImageCache
from learning.data.medical.decoding import features_of
from learning.data.medical.scan import scan, scan_file
from learning.data.medical.series import Item, items_of
from protocol.codebook import Images


def read_unlabelled_images(
    paths: Sequence[Path], form: Images
) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """Return the names and the features of files, and of all images below folders.

    They are those of training. Only localizers and copies are left out, and nothing is cached.
    """
    items: list[Item] = []
    problems: list[str] = []
    for path in paths:
        try:
            items += _items(path, form, problems)
        except DataError as error:
            problems += error.problems
    features = np.zeros((len(items), *form.shape), dtype=np.float32)
    for row, item in enumerate(items):
        try:
            features[row] = features_of(item, form, ImageCache(None, Path()))
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(*problems)
    return tuple(map(_name, items)), features


def _name(item: Item) -> str:
    """Return the path of a file; of a series, the path of its folder and its number."""
    first = item.files[0]
    if len(item.files) == 1:
        return str(first.path)
    return f"{first.path.parent}, series {first.header.series}"


def _items(path: Path, form: Images, problems: list[str]) -> list[Item]:
    if not path.is_dir():
        return items_of([scan_file(path)], form)
    found = scan(path, ImageCache(None, path))
    problems += found.unreadable.values()
    if not found.images:
        raise DataError(f"{path}: no DICOM or NIfTI images in it")
    return items_of(found.images, form)
