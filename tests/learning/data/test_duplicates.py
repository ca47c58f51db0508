"""Copies among images are found: equal ones, and those that were only saved again."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from learning.data import DataOptions, load
from learning.data.duplicates import exact_copies, near_copies
from learning.data.preview import contact_sheet
from tests.learning.data.conftest import real_data  # noqa: F401 (a fixture)


@pytest.mark.parametrize("shape", [(1, 64, 50), (3, 32, 32), (1, 5, 40, 40), (1, 7, 7)])
def test_equal_and_almost_equal_images_are_counted_apart(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(30, *shape)).astype(np.float32)
    brighter = 1.2 * images[3] + 0.1
    noisy = images[5] + 0.001 * rng.normal(size=shape).astype(np.float32)
    black = np.zeros((2, *shape), dtype=np.float32)
    everything = np.concatenate([images, images[:2], [brighter, noisy], black])
    assert exact_copies(everything) == 3  # two images, and the second black one
    assert near_copies(everything) == 2


def test_many_images_are_compared_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(1).normal(size=(25, 1, 8, 8)).astype(np.float32)
    everything = np.concatenate([images, 2 * images])
    found = near_copies(everything)
    monkeypatch.setattr("learning.data.duplicates._BLOCK", 7)
    assert near_copies(everything) == found == 25


@pytest.mark.slow
def test_the_duplicates_of_the_mri_manifest_are_found(real_data) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    folder: Path = real_data("brain_mri")
    options = DataOptions(test_fraction=0, group_column="none")
    images = load("brain-mri", folder=folder, seed=0, options=options).train.features
    with (folder / "manifest.csv").open(newline="") as file:
        groups = Counter(row["near_dup_group"] for row in csv.DictReader(file))
    listed = sum(count - 1 for group, count in groups.items() if group)
    assert listed <= exact_copies(images) + near_copies(images) <= listed + 2


def test_a_contact_sheet_shows_grey_values_as_they_were() -> None:
    from io import BytesIO

    from PIL import Image

    grey = np.linspace(0, 255, 4 * 5, dtype=np.uint8).reshape(1, 1, 4, 5)
    sheet = contact_sheet(((grey / 255 - 0.5) / 0.25).astype(np.float32), 0.5, 0.25)
    assert np.asarray(Image.open(BytesIO(sheet))).tolist() == grey[0, 0].tolist()
    many = np.zeros((200, 3, 4, 5), dtype=np.float32)
    assert Image.open(BytesIO(contact_sheet(many, 0.5, 0.25))).size == (8 * 6 - 1, 8 * 5 - 1)
