"""A hospital's data: its own files, or its partition of a simulated study's data set."""

from functools import lru_cache
from pathlib import Path

import numpy as np

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
from .settings import LocalSettings

# Fixed: after a restart the same examples must be held out, or the model has trained on them.
_HELD_OUT_SEED = 0
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
    local: LocalSettings, name: str, *, classes: tuple[str, ...] = (), standardise: bool = True
) -> Partition:
    """Load a real hospital's data; its test set, or `test-fraction` of the data, is held out."""
    dataset = load(
        local.dataset,
        folder=_folder(local),
        seed=_HELD_OUT_SEED,
        options=_options(local, classes=classes, standardise=standardise),
    )
    return Partition(name, dataset.train, dataset.test)


@lru_cache(maxsize=1)
def load_dataset(local: LocalSettings, seed: int) -> Dataset:
    """Load the configured data set; `seed` draws its test set."""
    return load(local.dataset, folder=_folder(local), seed=seed, options=_options(local))


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


def _folder(local: LocalSettings) -> Path | None:
    return Path(local.data_dir) if local.data_dir else default_folder(local.dataset)


def _options(
    local: LocalSettings, *, classes: tuple[str, ...] = (), standardise: bool = True
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
    )
