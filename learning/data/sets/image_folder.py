"""Images sorted into one folder for each class, and the paper's two medical image sets.

Either folder/train/<class>/* and folder/test/<class>/*, or folder/<class>/* with a random
test set. A manifest.csv in the folder can list which images belong together.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import IN_BOTH, DataError, Dataset, Examples
from learning.data.manifest import manifest_columns
from learning.data.options import DataOptions, ImageMode
from learning.data.partition.groups import set_apart, unite
from learning.data.partition.held_out import identities
from learning.data.pixels import read_images
from learning.data.scale import scale_pixels
from learning.data.sources import require

_log = logging.getLogger(__name__)

SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True)
class _Kind:
    """Properties that a known data set fixes and a user's own folder leaves open."""

    name: str
    size: int = 128
    mode: ImageMode = "auto"
    classes: tuple[str, ...] = ()


def image_folder(folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read a user's own images."""
    return _load(_Kind("image-folder"), folder, seed, options)


def brain_mri(folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read MRI scans with (yes) and without (no) a tumour, in the paper's size."""
    kind = _Kind("brain-mri", size=150, mode="grey", classes=("no", "yes"))
    return _load(kind, folder, seed, options)


def chest_xray(folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read chest X-rays of children with and without pneumonia; the publisher's test set."""
    kind = _Kind("chest-xray", mode="grey", classes=("NORMAL", "PNEUMONIA"))
    return _load(kind, folder, seed, options)


def _load(kind: _Kind, folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    root = require(kind.name, folder)
    classes = kind.classes or options.classes or _class_folders(root)
    files = list(_image_files(root, classes))
    # A hospital may lack images of a class only if the user names the classes.
    _check_classes(root, classes, files, some_may_lack=not kind.classes and bool(options.classes))
    pictures = read_images(
        [root / file.key for file in files],
        size=options.image_size or kind.size,
        mode=kind.mode if options.image_mode == "auto" else options.image_mode,
    )
    groups, columns = None, list[list[str]]()
    if options.group_column != "none":
        columns = manifest_columns(root, [file.key for file in files], options.group_column)
        groups = unite(*columns, pictures.digests)
    if options.held_out is not None and not any(file.for_test for file in files):
        # Without a patient by content: a file that is renamed, or there twice, is the same image.
        pool, test = options.held_out.set_apart(
            identities(columns, [f"image {digest}" for digest in pictures.digests]),
            unite(pictures.digests) if groups is None else groups,
            options.test_fraction,
        )
    else:
        pool, test = _pool_and_test(files, groups, options.test_fraction, seed)

    channels = pictures.pixels.shape[1]
    labels = np.array([classes.index(file.class_name) for file in files], dtype=np.int64)

    def examples(rows: NDArray[np.intp]) -> Examples:
        return Examples(
            scale_pixels(
                pictures.pixels[rows],
                [options.pixel_centre] * channels,
                [options.pixel_scale] * channels,
            ),
            labels[rows],
            None if groups is None else groups[rows],
        )

    leaks = len(files) - len(pool) - len(test)
    left_out = {IN_BOTH: leaks} if leaks else {}
    return Dataset(kind.name, examples(pool), examples(test), classes, left_out)


@dataclass(frozen=True)
class _ImageFile:
    key: str
    """Its path in the folder, with slashes on all systems."""

    class_name: str
    for_test: bool


def _class_folders(root: Path) -> tuple[str, ...]:
    parents = [root / "train", root / "test"] if (root / "train").is_dir() else [root]
    found = {
        path.name
        for parent in parents
        if parent.is_dir()
        for path in parent.iterdir()
        if path.is_dir() and not path.name.startswith((".", "__"))
    }
    return tuple(sorted(found))


def _image_files(root: Path, classes: tuple[str, ...]) -> Iterator[_ImageFile]:
    """Yield the images in an order independent of the file system."""
    parts = ("train", "test") if (root / "train").is_dir() else (".",)
    for part in parts:
        for class_name in classes:
            directory = root / part / class_name
            for path in sorted(directory.iterdir()) if directory.is_dir() else ():
                if path.suffix.lower() in SUFFIXES and not path.name.startswith("."):
                    key = path.relative_to(root).as_posix()
                    yield _ImageFile(key, class_name, for_test=part == "test")


def _check_classes(
    root: Path, classes: tuple[str, ...], files: list[_ImageFile], *, some_may_lack: bool
) -> None:
    present = {file.class_name for file in files if not file.for_test}
    missing = [name for name in classes if name not in present]
    if not present or (missing and not some_may_lack):
        raise DataError(
            f"{root}: no training images of class {' or '.join(missing) or '(no class folder)'}; "
            f"expected <class>/ or train/<class>/ with {', '.join(sorted(SUFFIXES))} files"
        )
    if len(classes) < 2:
        raise DataError(
            f"{root}: only one class, {classes[0]!r}; add the others' folders, or name all of "
            "the study's classes with the setting classes"
        )
    has_test_folder = (root / "train").is_dir() and (root / "test").is_dir()
    if has_test_folder and not any(file.for_test for file in files):
        raise DataError(f"{root / 'test'}: no images; fill it, or remove it to use test-fraction")


def _pool_and_test(
    files: list[_ImageFile],
    groups: NDArray[np.int64] | None,
    test_fraction: float,
    seed: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    for_test = np.array([file.for_test for file in files])
    if not for_test.any():
        return set_apart(len(files), groups, test_fraction, seed)
    leaks = np.zeros(len(files), dtype=bool)
    if groups is not None:
        # Removed from the pool, so that results on the publisher's test set stay comparable.
        leaks = ~for_test & np.isin(groups, groups[for_test])
        if leaks.any():
            _log.warning(
                "%d training images left out: their patient or a copy is in the test set",
                leaks.sum(),
            )
    pool = np.flatnonzero(~for_test & ~leaks)
    if not len(pool):
        raise DataError(
            "every training image belongs to a group of the test set: correct the manifest, or "
            "set group-column to none"
        )
    return pool, np.flatnonzero(for_test)
