"""SUSY as published, and the stand-in that has its shape."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from learning.data import DataError, DataOptions, Dataset, load


def read(folder: Path, seed: int = 0) -> Dataset:
    return load("susy", folder=folder, seed=seed, options=DataOptions())


def write(folder: Path, rows: int = 50, columns: int = 18) -> np.ndarray:
    """Write rows whose features are 100·row + column, as the publisher formats numbers."""
    table = 100 * np.arange(rows)[:, np.newaxis] + np.arange(columns)
    lines = [
        ",".join([f"{row % 2:.18e}", *(f"{value:.18e}" for value in table[row])])
        for row in range(rows)
    ]
    (folder / "SUSY.csv").write_text("\n".join(lines) + "\n")
    return table


def test_every_row_is_in_the_pool_or_in_the_test_set_with_its_label(tmp_path: Path) -> None:
    table = write(tmp_path)
    dataset = read(tmp_path)
    assert (len(dataset.train), len(dataset.test), dataset.shape) == (40, 10, (18,))
    features = np.concatenate([dataset.train.features, dataset.test.features])
    labels = np.concatenate([dataset.train.labels, dataset.test.labels])
    rows = np.rint(features[:, 0] / 100).astype(int)
    assert sorted(rows) == list(range(50))
    np.testing.assert_array_equal(features, table[rows])
    np.testing.assert_array_equal(labels, rows % 2)


def test_the_seed_draws_the_test_set(tmp_path: Path) -> None:
    write(tmp_path)
    one, same, other = read(tmp_path), read(tmp_path), read(tmp_path, seed=1)
    np.testing.assert_array_equal(one.test.features, same.test.features)
    assert not np.array_equal(one.test.features, other.test.features)


def test_the_packed_file_is_read_too(tmp_path: Path) -> None:
    write(tmp_path)
    plain = read(tmp_path)
    file = tmp_path / "SUSY.csv"
    (tmp_path / "SUSY.csv.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    np.testing.assert_array_equal(read(tmp_path).train.features, plain.train.features)


def test_what_is_not_susy_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither SUSY\.csv nor SUSY\.csv\.gz; they come from"):
        read(tmp_path)
    write(tmp_path, columns=4)
    with pytest.raises(DataError, match="5 columns where SUSY has a label and 18 features"):
        read(tmp_path)
    (tmp_path / "SUSY.csv").write_text("label,a\n")
    with pytest.raises(DataError, match="not a complete table of numbers"):
        read(tmp_path)


def test_the_best_linear_model_gets_four_of_five_of_the_stand_in_right() -> None:
    dataset = load("susy-stand-in", folder=None, seed=3, options=DataOptions())
    assert dataset.name == "susy-stand-in"
    assert dataset.shape == (18,)
    model = LogisticRegression().fit(dataset.train.features, dataset.train.labels)
    assert model.score(dataset.test.features, dataset.test.labels) == pytest.approx(0.8, abs=0.01)
