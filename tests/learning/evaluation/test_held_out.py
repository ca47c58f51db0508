"""Figures on held-out examples: by hand, and against scikit-learn."""

import json

import numpy as np
import pytest
from sklearn import metrics

from learning.evaluation import evaluate_predictions

CLASSES = ("benign", "malignant")


def binary(chance: list[float]) -> np.ndarray:
    second = np.array(chance)
    return np.stack([1 - second, second], axis=1)


def test_six_patients_by_hand() -> None:
    found = evaluate_predictions(
        binary([0.1, 0.2, 0.6, 0.4, 0.7, 0.9]), np.array([0, 0, 0, 1, 1, 1]), CLASSES
    )
    assert found.confusion == ((2, 1), (1, 2))
    assert found.examples == 6
    assert found.accuracy is not None
    assert found.accuracy.value == pytest.approx(4 / 6)
    (malignant,) = found.by_class
    assert malignant.name == "malignant"
    assert malignant.sensitivity is not None
    assert malignant.specificity is not None
    assert (malignant.sensitivity.value, malignant.specificity.value) == (2 / 3, 2 / 3)
    # (.01 + .04 + .36 + .36 + .09 + .01)/6, and (2.9 − 3)/6.
    assert found.brier == pytest.approx(0.87 / 6)
    assert malignant.predicted_minus_observed == pytest.approx(-0.1 / 6)
    variance = 0.1 * 0.9 + 0.2 * 0.8 + 0.6 * 0.4 + 0.4 * 0.6 + 0.7 * 0.3 + 0.9 * 0.1
    assert malignant.predicted_minus_observed_sd == pytest.approx(variance**0.5 / 6)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scikit_learn_computes_the_same(classes: int) -> None:
    rng = np.random.default_rng(classes)
    labels = rng.permutation(np.arange(60) % classes)
    chances = rng.dirichlet(np.ones(classes), 60)
    names = [f"class {k}" for k in range(classes)]
    found = evaluate_predictions(chances, labels, names)
    best = chances.argmax(axis=1)
    assert np.array_equal(found.confusion, metrics.confusion_matrix(labels, best))
    assert found.accuracy is not None
    assert found.balanced_accuracy is not None
    assert found.accuracy.value == pytest.approx(metrics.accuracy_score(labels, best))
    assert found.balanced_accuracy.value == pytest.approx(
        metrics.balanced_accuracy_score(labels, best)
    )
    truth = chances[:, 1] if classes == 2 else chances
    assert found.brier == pytest.approx(metrics.brier_score_loss(labels, truth))
    for figures in found.by_class:
        k = names.index(figures.name)
        assert figures.auc is not None
        assert figures.sensitivity is not None
        assert figures.specificity is not None
        assert figures.auc.value == pytest.approx(metrics.roc_auc_score(labels == k, chances[:, k]))
        assert figures.sensitivity.value == pytest.approx(
            metrics.recall_score(labels == k, best == k)
        )
        assert figures.specificity.value == pytest.approx(
            metrics.recall_score(labels != k, best != k)
        )


def test_one_class_only_gets_its_counts_and_no_auc() -> None:
    found = evaluate_predictions(binary([0.2] * 12), np.zeros(12, dtype=np.int64), CLASSES)
    assert found.confusion == ((12, 0), (0, 0))
    assert found.balanced_accuracy is None
    (figures,) = found.by_class
    assert figures.auc is None
    assert figures.sensitivity is None
    assert found.notes == (
        "no balanced accuracy: of 12 held-out examples none is malignant",
        "no AUC of malignant: 0 held-out examples are malignant and 12 are not; "
        "5 of each are needed",
    )


@pytest.mark.parametrize(("positives", "has_auc"), [(4, False), (5, True)])
def test_an_auc_needs_five_of_each_class(positives: int, has_auc: bool) -> None:
    labels = np.array([1] * positives + [0] * 10)
    found = evaluate_predictions(binary([0.5] * len(labels)), labels, CLASSES)
    assert (found.by_class[0].auc is not None) == has_auc
    assert bool(found.notes) != has_auc


def test_nothing_held_out_is_said_and_nothing_computed() -> None:
    found = evaluate_predictions(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), CLASSES)
    assert (found.examples, found.accuracy, found.brier, found.by_class) == (0, None, None, ())
    assert "no example is held out" in found.notes[0]


def test_the_evaluation_is_json() -> None:
    found = evaluate_predictions(binary([0.2, 0.9]), np.array([0, 1]), CLASSES)
    assert json.loads(json.dumps(found.as_dict()))["confusion"] == [[1, 0], [0, 1]]
