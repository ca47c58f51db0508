"""The data of a simulated study: disjoint partitions that follow from settings and seed alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from learning.data import DataError, Examples
from learning.local_data import load_dataset, load_partitions
from learning.settings import LocalSettings


@pytest.fixture(autouse=True)
def _nothing_cached() -> Iterator[None]:
    load_dataset.cache_clear()
    load_partitions.cache_clear()
    yield
    load_dataset.cache_clear()


def local(**changes: Any) -> LocalSettings:
    values = {"dataset": "breast-cancer", "examples": 7, "held-out": 3}
    values |= {key.replace("_", "-"): value for key, value in changes.items()}
    return LocalSettings.parse(values, source="test")


def rows(examples: Examples) -> set[bytes]:
    return {row.tobytes() for row in examples.features}


def test_no_patient_is_in_two_places() -> None:
    partitions, dataset = load_partitions(local(), 20, 1), load_dataset(local(), 1)
    parts = [
        dataset.test,
        *(p for partition in partitions for p in (partition.train, partition.held_out)),
    ]

    # No two of the 569 patients have the same measurements, so that rows can stand for them.
    assert len(np.unique(load_breast_cancer().data, axis=0)) == 569
    assert len(set.union(*map(rows, parts))) == sum(len(part) for part in parts)
    assert set.union(*map(rows, parts[1:])) <= rows(dataset.train)


def test_every_hospital_has_what_the_settings_say() -> None:
    partitions = load_partitions(local(), 12, 1)

    assert [partition.name for partition in partitions] == [
        f"hospital-{n:02}" for n in range(1, 13)
    ]
    assert {(len(partition.train), len(partition.held_out)) for partition in partitions} == {(7, 3)}


def test_the_test_set_is_the_share_the_settings_say() -> None:
    dataset = load_dataset(local(test_fraction=0.25), 1)

    assert len(dataset.test) == round(0.25 * 569)
    assert len(dataset.train) + len(dataset.test) == 569


def test_the_same_seed_gives_the_same_shares() -> None:
    def partitions(seed: int) -> list[bytes]:
        load_dataset.cache_clear()
        load_partitions.cache_clear()
        return [
            part.features.tobytes() + part.labels.tobytes()
            for partition in load_partitions(local(), 5, seed)
            for part in (partition.train, partition.held_out)
        ]

    assert partitions(1) == partitions(1)
    assert not set(partitions(1)) & set(partitions(2))


def test_shares_of_one_process_are_made_once() -> None:
    assert load_partitions(local(), 5, 1) is load_partitions(local(), 5, 1)
    assert load_dataset(local(), 1) is load_dataset(local(), 1)
    assert load_partitions(local(), 5, 1) is not load_partitions(local(examples=8), 5, 1)


def test_the_split_is_the_one_the_settings_name() -> None:
    pathological = local(dataset="digits", split="pathological", examples=8, held_out=4)
    for partition in load_partitions(pathological, 10, 1):
        assert len(np.unique(partition.train.labels)) == 2
        assert set(partition.held_out.labels) <= set(partition.train.labels)
    three = local(
        dataset="digits", split="pathological", examples=9, held_out=3, classes_per_hospital=3
    )
    assert {
        len(np.unique(partition.train.labels)) for partition in load_partitions(three, 10, 1)
    } == {3}


def test_skewed_hospitals_have_the_papers_sizes() -> None:
    skewed = local(
        split="skewed", examples=10, held_out=0, skew_min_examples=2, skew_small_fraction=0.3
    )

    sizes = sorted(len(partition.train) for partition in load_partitions(skewed, 10, 1))

    assert sizes[:3] == [2, 2, 2]
    assert sum(sizes) == 100


def write_csv(path: Path) -> Path:
    lines = ["clinic,patient,x,y,outcome"]
    for number in range(40):
        clinic = "east" if number < 24 else "west"
        outcome = "ill" if number % 3 else "well"
        lines.append(f"{clinic},{number // 2},{number},{number % 7},{outcome}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_columns_and_folder_are_passed_on(tmp_path: Path) -> None:
    settings = local(
        dataset="csv",
        data_dir=str(write_csv(tmp_path / "study.csv")),
        label_column="outcome",
        group_column="patient",
        hospital_column="clinic",
        split="natural",
        held_out=2,
    )

    partitions, dataset = load_partitions(settings, 2, 1), load_dataset(settings, 1)

    assert [partition.name for partition in partitions] == ["east", "west"]
    assert set(dataset.classes) == {"ill", "well"}
    assert dataset.shape == (2,)  # x and y; the other columns are no measurements
    groups = [
        set(p.groups) for s in partitions for p in (s.train, s.held_out) if p.groups is not None
    ]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_images_are_read_in_the_size_and_mode_the_settings_say(tmp_path: Path) -> None:
    from PIL import Image

    for label in ("no", "yes"):
        (tmp_path / label).mkdir()
        for number in range(12):
            noise = np.random.default_rng(number + 100 * (label == "yes"))
            pixels = noise.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / label / f"{number}.png")
    folder = {"dataset": "image-folder", "data_dir": str(tmp_path), "examples": 2, "held_out": 0}

    assert load_dataset(local(**folder, image_size=9, image_mode="grey"), 1).shape == (1, 9, 9)
    assert load_dataset(local(**folder, image_size=12, image_mode="rgb"), 1).shape == (3, 12, 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "brest-cancer"}, "unknown data set 'brest-cancer'"),
        ({"examples": 1000}, "lower hospitals, examples or held-out"),
        ({"split": "natural"}, "natural needs each example's hospital"),
        ({"dataset": "csv", "data_dir": "/nowhere/study.csv"}, "nowhere"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load_partitions(local(**changes), 5, 1)
    assert "\n" not in str(refused.value)
