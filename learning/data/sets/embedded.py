"""Data sets without files: two from scikit-learn's package, one generated."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import Dataset, Examples
from learning.data.options import DataOptions
from learning.data.partition.groups import set_apart
from learning.data.scale import standardise

# Of all 1,797 images, on the scale from 0 to 1.
_DIGITS_MEAN, _DIGITS_DEVIATION = 0.3053, 0.3760


def digits(_folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read 1,797 handwritten digits, 8×8 grey, standardised by constants."""
    from sklearn.datasets import load_digits

    source = load_digits()
    pixels: NDArray[np.float64] = source.images / 16
    features = ((pixels - _DIGITS_MEAN) / _DIGITS_DEVIATION).astype(np.float32)
    examples = Examples(features[:, np.newaxis], source.target.astype(np.int64))
    pool, test = set_apart(len(examples), None, options.test_fraction, seed)
    classes = tuple(str(digit) for digit in range(10))
    return Dataset("digits", examples.take(pool), examples.take(test), classes)


def breast_cancer(_folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read 569 patients with 30 measurements, standardised over the training pool."""
    from sklearn.datasets import load_breast_cancer

    source = load_breast_cancer()
    labels = source.target.astype(np.int64)
    pool, test = set_apart(len(labels), None, options.test_fraction, seed)
    examples = Examples(standardise(source.data, pool), labels)
    classes = tuple(str(name) for name in source.target_names)
    return Dataset("breast-cancer", examples.take(pool), examples.take(test), classes)


def synthetic(_folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Generate the paper's synthetic data (appendix, training setup, "Synthetic Data").

    Pool and test set come from one call, because another call would have other clusters. Like the
    authors' scripts, it does not standardise.
    """
    from sklearn.datasets import make_classification

    features, labels = make_classification(
        n_samples=options.train_examples + options.test_examples,
        n_features=100,
        n_informative=20,
        n_redundant=60,
        n_repeated=5,
        n_classes=2,
        n_clusters_per_class=3,
        class_sep=1.0,
        shift=1.0,
        scale=3.0,
        flip_y=0.02,
        # scikit-learn takes 32 bits, a seed may have more.
        random_state=int(np.random.SeedSequence(seed).generate_state(1)[0]),
    )
    examples = Examples(features.astype(np.float32), labels.astype(np.int64))
    rows = np.arange(len(examples))
    return Dataset(
        "synthetic",
        examples.take(rows[: options.train_examples]),
        examples.take(rows[options.train_examples :]),
        ("0", "1"),
    )
