"""The data sets that need no files are the ones the paper and scikit-learn describe."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

from learning.data import DataOptions, Dataset, Examples, load


def read(name: str, seed: int = 0, options: DataOptions | None = None) -> Dataset:
    return load(name, folder=None, seed=seed, options=options or DataOptions())


def same(one: Examples, other: Examples) -> bool:
    return len(one) == len(other) and bool((one.features == other.features).all())


def test_digits_are_scikit_learns_standardised_by_constants() -> None:
    digits = read("digits")
    assert digits.shape == (1, 8, 8)
    assert digits.classes == tuple("0123456789")
    assert (len(digits.train), len(digits.test)) == (1438, 359)
    whole = np.concatenate([digits.train.features, digits.test.features])
    assert whole.mean() == pytest.approx(0, abs=1e-3)
    assert whole.std() == pytest.approx(1, abs=1e-3)
    source = datasets.load_digits()
    restored = np.round(16 * (whole[:, 0].astype(float) * 0.3760 + 0.3053)).reshape(-1, 64)
    labels = np.concatenate([digits.train.labels, digits.test.labels])
    found = {(*image, label) for image, label in zip(restored, labels, strict=True)}
    assert found == {
        (*image, label) for image, label in zip(source.data, source.target, strict=True)
    }


def test_breast_cancer_is_standardised_over_the_training_pool() -> None:
    cancer = read("breast-cancer")
    assert cancer.shape == (30,)
    assert cancer.classes == ("malignant", "benign")
    assert (len(cancer.train), len(cancer.test)) == (455, 114)
    assert cancer.train.features.mean(axis=0) == pytest.approx(np.zeros(30), abs=1e-6)
    assert cancer.train.features.std(axis=0) == pytest.approx(np.ones(30), abs=1e-6)
    assert abs(cancer.test.features.mean(axis=0)).max() > 1e-3
    labels = np.concatenate([cancer.train.labels, cancer.test.labels])
    assert np.bincount(labels).tolist() == [212, 357]
    model = LogisticRegression().fit(cancer.train.features, cancer.train.labels)
    assert model.score(cancer.test.features, cancer.test.labels) > 0.93


def test_synthetic_data_have_the_papers_structure() -> None:
    synthetic = read("synthetic")
    assert synthetic.shape == (100,)
    assert (len(synthetic.train), len(synthetic.test)) == (5000, 5000)
    features = synthetic.train.features.astype(np.float64)
    # 20 columns are informative, 60 + 5 redundant and repeated ones follow from them, and 15
    # are noise.
    spectrum = np.linalg.svd(features - features.mean(axis=0), compute_uv=False)
    assert (spectrum > 1e-3 * spectrum[0]).sum() == 35
    distinct = np.unique(np.round(features, 4), axis=1)
    assert distinct.shape[1] == 95
    # Noise columns are 3·(N(0, 1) + 1): the smallest deviations, with shift 1 and scale 3.
    noise = np.argsort(features.std(axis=0))[:15]
    assert features[:, noise].mean() == pytest.approx(3, abs=0.1)
    assert features[:, noise].std() == pytest.approx(3, abs=0.1)
    assert np.bincount(synthetic.train.labels) == pytest.approx(np.array([2500, 2500]), rel=0.1)


def test_synthetic_pool_and_test_set_are_of_one_distribution() -> None:
    synthetic = read("synthetic", options=DataOptions(train_examples=3000, test_examples=400))
    assert (len(synthetic.train), len(synthetic.test)) == (3000, 400)
    model = LogisticRegression(max_iter=2000).fit(synthetic.train.features, synthetic.train.labels)
    other = read("synthetic", seed=1, options=DataOptions(test_examples=400))
    here = model.score(synthetic.test.features, synthetic.test.labels)
    there = model.score(other.test.features, other.test.labels)
    assert here > 0.65
    assert there < here


@pytest.mark.parametrize("name", ["digits", "breast-cancer", "synthetic"])
def test_the_seed_decides_the_test_set_and_nothing_else_does(name: str) -> None:
    assert same(read(name, 1).test, read(name, 1).test)
    assert not same(read(name, 1).test, read(name, 2).test)
    assert not same(read(name, 1).test, read(name, 1 + 2**64).test)
