"""Metrics against scikit-learn's, in eval mode, with the module left as it was."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, hinge_loss, log_loss
from torch import Tensor, nn

from learning.metrics import evaluate


def random_case(seed: int, count: int, classes: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.normal(size=(count, classes)))
    # Uneven, and with classes that may not occur at all.
    chances = rng.dirichlet(np.full(classes, 0.5))
    return scores, torch.tensor(rng.choice(classes, count, p=chances))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 6))
def test_figures_are_scikit_learns(seed: int, count: int, classes: int) -> None:
    scores, labels = random_case(seed, count, classes)

    # The scores are their own outputs: the module has nothing to add.
    figures = evaluate(nn.Identity(), scores, labels, "cross-entropy")

    predicted = scores.argmax(1).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is predicted but does not occur
        balanced = balanced_accuracy_score(labels.numpy(), predicted)
    chances = torch.softmax(scores, 1).numpy()
    assert figures.accuracy == pytest.approx(accuracy_score(labels.numpy(), predicted), rel=1e-12)
    assert figures.balanced_accuracy == pytest.approx(balanced, rel=1e-12)
    assert figures.loss == pytest.approx(
        log_loss(labels.numpy(), chances, labels=range(classes)), rel=1e-9
    )


def test_balanced_accuracy_by_hand() -> None:
    # Of three healthy patients three are found, of one ill patient none.
    scores = torch.tensor([[1.0, 0.0]] * 4)
    labels = torch.tensor([0, 0, 0, 1])

    figures = evaluate(nn.Identity(), scores, labels, "cross-entropy")

    assert (figures.accuracy, figures.balanced_accuracy) == (0.75, 0.5)


def test_hinge_figures_are_scikit_learns() -> None:
    rng = np.random.default_rng(4)
    margins, labels = rng.normal(size=40), rng.integers(0, 2, 40)

    figures = evaluate(nn.Identity(), torch.tensor(margins)[:, None], torch.tensor(labels), "hinge")

    assert figures.loss == pytest.approx(hinge_loss(labels, margins), rel=1e-12)
    assert figures.accuracy == accuracy_score(labels, margins > 0)
    assert figures.balanced_accuracy == pytest.approx(
        balanced_accuracy_score(labels, margins > 0), rel=1e-12
    )


@pytest.mark.parametrize("count", [1, 511, 512, 513, 1025])
def test_large_sets_are_evaluated_in_parts_with_the_same_result(count: int) -> None:
    sizes = []

    class Recording(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            sizes.append(len(features))
            return features

    scores, labels = random_case(1, count, 3)

    figures = evaluate(Recording(), scores, labels, "cross-entropy")

    assert figures.accuracy == accuracy_score(labels.numpy(), scores.argmax(1).numpy())
    assert figures.loss == pytest.approx(
        float(nn.functional.cross_entropy(scores, labels)), rel=1e-12
    )
    assert sum(sizes) == count
    assert max(sizes) <= 512


def normalising() -> nn.BatchNorm1d:
    network = nn.BatchNorm1d(2, affine=False, dtype=torch.float64)
    network.running_mean = torch.tensor([1.0, -1.0], dtype=torch.float64)
    network.running_var = torch.tensor([4.0, 0.25], dtype=torch.float64)
    return network


def test_batch_norm_uses_its_running_statistics_and_keeps_them() -> None:
    network = normalising()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    x = torch.tensor([[3.0, 0.0], [0.0, -0.5]], dtype=torch.float64)
    # By hand: ([3−1]/2, [0+1]/0.5) = (1, 2) and (−1/2, 1), up to BatchNorm's ε of 1e−5.
    normalised = torch.tensor([[1.0, 2.0], [-0.5, 1.0]], dtype=torch.float64)
    labels = torch.tensor([1, 0])

    figures = evaluate(network, x, labels, "cross-entropy")

    expected = float(nn.functional.cross_entropy(normalised, labels))
    assert figures.loss == pytest.approx(expected, rel=1e-4)
    assert figures.accuracy == 0.5
    assert all(torch.equal(network.state_dict()[name], before[name]) for name in before)
    # A model on one example, which training mode could not even compute.
    assert evaluate(network, x[:1], labels[:1], "cross-entropy").accuracy == 1.0


def test_dropout_is_off() -> None:
    scores, labels = random_case(2, 50, 3)

    assert evaluate(nn.Dropout(0.9), scores, labels, "cross-entropy") == evaluate(
        nn.Identity(), scores, labels, "cross-entropy"
    )


@pytest.mark.parametrize("training", [True, False])
def test_the_module_is_left_in_the_mode_it_was_in(training: bool) -> None:
    network = nn.Sequential(nn.Dropout(0.5), normalising()).train(training)
    scores, labels = random_case(3, 4, 2)

    evaluate(network, scores, labels, "cross-entropy")

    assert [module.training for module in network.modules()] == [training] * 3


def test_the_mode_is_restored_when_the_module_fails() -> None:
    network = nn.Sequential(nn.Dropout(0.5), nn.Linear(7, 2)).train()

    with pytest.raises(RuntimeError):
        evaluate(network, torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), "cross-entropy")

    assert network.training
    assert network[0].training


def test_nothing_is_recorded_for_gradients() -> None:
    network = nn.Linear(3, 2)
    seen = []
    network.register_forward_hook(lambda *call: seen.append(call[2].requires_grad))

    evaluate(network, torch.zeros(2, 3), torch.tensor([0, 1]), "cross-entropy")

    assert seen == [False]


def test_a_model_that_is_not_finite_gives_a_loss_that_is_not() -> None:
    scores = torch.tensor([[float("nan"), 0.0]])

    assert np.isnan(evaluate(nn.Identity(), scores, torch.tensor([0]), "cross-entropy").loss)
