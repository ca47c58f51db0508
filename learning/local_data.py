"""A hospital's data: its own files, or its partition of a simulated study's data set."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from protocol.codebook import Codebook, CodebookError

from .data import (
    DataError,
    DataOptions,
    Dataset,
    Partition,
    SplitOptions,
    default_folder,
    load,
    split,
)
from .data.partition.held_out import KEY_BYTES, HeldOut
from .data.sources import read_text
from .data.tables.files import find_table
from .data.tables.local_columns import LocalColumn, LocalColumns
from .data.tables.rows import read_rows
from .settings import LocalSettings

# Fixed: after a restart the same examples must be held out, or the model has trained on them.
_HELD_OUT_SEED = 0
_CLASSES_AS_FOUND = {"csv", "image-folder", "medical-folder"}  # unless they are named
_OF_ONE_SIZE = {
    "breast-cancer",
    "cifar10",
    "csv",
    "digits",
    "heart-disease",
    "mnist",
    "susy",
    "susy-stand-in",
    "synthetic",
}


def load_own(
    local: LocalSettings,
    name: str,
    *,
    classes: tuple[str, ...] = (),
    standardise: bool = True,
    codebook: Codebook | None = None,
    columns: LocalColumns | None = None,
    held_out: HeldOut | None = None,
    cache: Path | None = None,
) -> Partition:
    """Load a real hospital's data; its test set, or `test-fraction` of the data, is held out.

    With a codebook, examples are what it says, and `columns` has this hospital's own names.
    `held_out` keeps patients on the side they were on; without it the seed decides. `cache` is a
    folder for decoded medical images.
    """
    if codebook is not None and codebook.columns:
        rows = read_rows(
            find_table(_folder(local)), codebook, columns or {}, group_column=local.group_column
        )
        return rows.partition(
            name, codebook, held_out or HeldOut(bytes(KEY_BYTES)), local.test_fraction
        )
    if codebook is not None and local.dataset != "medical-folder":
        local, classes = _as_in_codebook(local, codebook), codebook.classes
    options = _options(local, classes=classes, standardise=standardise, held_out=held_out)
    if codebook is not None and codebook.images is not None:
        centre, scale = codebook.images.centre, codebook.images.scale
        options = replace(options, pixel_centre=centre, pixel_scale=scale)
    if local.dataset == "medical-folder":
        options = _medical(options, codebook, columns or {}, cache)
    dataset = load(local.dataset, folder=_folder(local), seed=_HELD_OUT_SEED, options=options)
    if codebook is not None and dataset.shape != codebook.shape:
        raise DataError(
            f"the images here have the shape {dataset.shape}, the codebook's {codebook.shape}"
        )
    # What was found in the data is no agreement: a refusal must not depend on it.
    is_fixed = bool(options.classes) or local.dataset not in _CLASSES_AS_FOUND
    return Partition(
        name,
        dataset.train,
        dataset.test,
        dataset.classes if is_fixed else None,
        left_out=dataset.left_out,
    )


def _medical(
    options: DataOptions, codebook: Codebook | None, columns: LocalColumns, cache: Path | None
) -> DataOptions:
    options = replace(options, cache=cache or options.cache)
    if codebook is None:
        return options
    here = columns.get(codebook.label, LocalColumn())
    is_default = options.label_column == DataOptions.label_column
    return replace(
        options,
        images=codebook.images,
        classes=codebook.classes,
        label_column=here.column or (codebook.label if is_default else options.label_column),
        levels=tuple(here.levels.items()),
    )


def _as_in_codebook(local: LocalSettings, codebook: Codebook) -> LocalSettings:
    images = codebook.images
    assert images is not None  # noqa: S101 (a codebook is of rows or of images)
    height, width = images.size[-2:]
    if images.view != "slice" or images.intensity != "8-bit" or height != width:
        raise DataError(
            f"dataset = {local.dataset} reads square 8-bit slices, which the codebook's images "
            "are not"
        )
    return local.model_copy(
        update={"image_size": height, "image_mode": "grey" if images.channels == 1 else "rgb"}
    )


@lru_cache(maxsize=1)
def load_dataset(local: LocalSettings, seed: int) -> Dataset:
    """Load the configured data set; `seed` draws its test set."""
    options = _options(local)
    if local.codebook:
        if local.dataset != "medical-folder":
            raise DataError(f"codebook has no effect on dataset = {local.dataset}: leave it out")
        options = _medical(options, _codebook(Path(local.codebook)), {}, None)
    return load(local.dataset, folder=_folder(local), seed=seed, options=options)


@lru_cache(maxsize=1)
def load_partitions(local: LocalSettings, hospitals: int, seed: int) -> tuple[Partition, ...]:
    """Return every hospital's partition of the training pool, sorted by name."""
    how = SplitOptions(
        kind=local.split,
        hospitals=hospitals,
        examples=local.examples,
        held_out=local.held_out,
        classes_per_hospital=local.classes_per_hospital,
        skew_small_fraction=local.skew_small_fraction,
        skew_min_examples=local.skew_min_examples,
    )
    return tuple(split(load_dataset(local, seed).train, how, np.random.default_rng(seed)))


def _codebook(path: Path) -> Codebook:
    try:
        return Codebook.from_toml(read_text(path))
    except CodebookError as error:
        raise DataError(f"{path}: {error}") from error


def _folder(local: LocalSettings) -> Path | None:
    return Path(local.data_dir) if local.data_dir else default_folder(local.dataset)


def _options(
    local: LocalSettings,
    *,
    classes: tuple[str, ...] = (),
    standardise: bool = True,
    held_out: HeldOut | None = None,
) -> DataOptions:
    resized = local.image_size and local.dataset != "cifar10"  # which takes 16 and 8
    if local.dataset in _OF_ONE_SIZE and (resized or local.image_mode != "auto"):
        raise DataError(
            f"image-size and image-mode have no effect on dataset = {local.dataset}: leave them out"
        )
    return DataOptions(
        test_fraction=local.test_fraction,
        classes=classes,
        image_size=local.image_size or None,
        image_mode=local.image_mode,
        group_column=local.group_column,
        label_column=local.label_column,
        hospital_column=local.hospital_column or None,
        standardise=standardise,
        held_out=held_out,
        labels=local.labels,
        label_key=local.label_key,
        key_column=local.key_column,
        unlabelled=local.unlabelled,
        unreadable=local.unreadable,
        cache=Path(local.cache_dir) if local.cache_dir else None,
    )
