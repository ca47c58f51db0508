"""Examples without a class, to predict: files and codebook in, features out.

The mapping is that of training: nothing depends on other examples or on this hospital's data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError
from learning.data.pixels import read_images
from learning.data.scale import scale_pixels
from learning.data.sets.image_folder import SUFFIXES
from learning.data.tables.encode import encode
from learning.data.tables.files import read_table
from learning.data.tables.local_columns import LocalColumns
from protocol.codebook import Codebook, Images


@dataclass(frozen=True, eq=False)
class Inputs:
    """Examples by name: a file, or a file and a line of it."""

    names: tuple[str, ...]
    features: NDArray[np.float32]


def read_rows_of(paths: Sequence[Path], codebook: Codebook, local: LocalColumns) -> Inputs:
    """Read the rows of tables; DataError lists what is wrong with any of them."""
    names: list[str] = []
    parts: list[NDArray[np.float32]] = []
    problems: list[str] = []
    for path in paths:
        try:
            table = read_table(path)
            parts.append(encode(table, codebook, local).features)
            names += [f"{path}, line {line}" for line in table.lines.tolist()]
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(*problems)
    return Inputs(tuple(names), np.concatenate(parts))


def read_images_of(paths: Sequence[Path], form: Images) -> Inputs:
    """Read images, or all images below folders, as the codebook describes them.

    Pictures (png, jpeg, …) are read as `image-folder` does, all others as `medical-folder` does.
    """
    pictures: list[Path] = []
    others: list[Path] = []
    for path in paths:
        found = list(_pictures_at(path))
        pictures += found
        if not found:
            others.append(path)
    parts: list[Inputs] = []
    problems: list[str] = []
    for files, read in ((pictures, _read_pictures), (others, _read_medical)):
        try:
            parts += [read(files, form)] if files else []
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(*problems)
    names = tuple(name for part in parts for name in part.names)
    return Inputs(names, np.concatenate([part.features for part in parts]))


def _read_pictures(files: Sequence[Path], form: Images) -> Inputs:
    height, width = form.size[-2:]
    if form.view != "slice" or form.intensity != "8-bit" or height != width:
        raise DataError(
            f"{files[0]}: pictures are square 8-bit slices, which the model's images are not"
        )
    found = read_images(files, size=height, mode="grey" if form.channels == 1 else "rgb")
    features = scale_pixels(
        found.pixels, [form.centre] * form.channels, [form.scale] * form.channels
    )
    return Inputs(tuple(map(str, files)), features)


def _read_medical(paths: Sequence[Path], form: Images) -> Inputs:
    from learning.data.medical.unlabelled_images import read_unlabelled_images  # needs an extra

    return Inputs(*read_unlabelled_images(paths, form))


def _pictures_at(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.suffix.lower() in SUFFIXES and not file.name.startswith("."):
                yield file
    elif path.suffix.lower() in SUFFIXES:
        yield path
