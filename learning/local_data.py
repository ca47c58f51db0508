"""The data of a simulated study: one data set, split between the hospitals."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from .data import DataOptions, Dataset, Share, SplitOptions, default_folder, load, split
from .settings import LocalSettings


@lru_cache(maxsize=1)
def load_dataset(local: LocalSettings, seed: int) -> Dataset:
    """Load the data set that the settings name; `seed` draws its test set."""
    folder = Path(local.data_dir) if local.data_dir else default_folder(local.dataset)
    options = DataOptions(
        test_share=local.test_share,
        image_size=local.image_size or None,
        image_mode=local.image_mode,
        group_column=local.group_column,
        label_column=local.label_column,
        silo_column=local.silo_column or None,
    )
    return load(local.dataset, folder=folder, seed=seed, options=options)


@lru_cache(maxsize=1)
def load_shares(local: LocalSettings, hospitals: int, seed: int) -> tuple[Share, ...]:
    """Return every hospital's share of the training pool, sorted by name."""
    how = SplitOptions(
        kind=local.split,
        hospitals=hospitals,
        samples=local.samples,
        held_out=local.held_out,
        classes_per_hospital=local.classes_per_hospital,
        smallest_share=local.smallest_share,
        smallest=local.smallest,
    )
    return tuple(split(load_dataset(local, seed).train, how, np.random.default_rng(seed)))
