"""AUC, sensitivity and specificity, against scikit-learn and counts by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from learning.metrics import evaluate_binary


@pytest.mark.parametrize("outputs", [1, 2])
def test_figures_are_those_of_scikit_learn(outputs: int) -> None:
    rng = torch.Generator().manual_seed(0)
    # Few different values, so that scores tie.
    features = torch.randint(-2, 3, (60, 3), generator=rng).float()
    labels = torch.randint(2, (60,), generator=rng)
    module = nn.Linear(3, outputs)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]])[:outputs])
        module.bias.zero_()
        scores = module(features)
    found = evaluate_binary(module, features, labels)
    assert found is not None
    margin = (scores[:, 0] if outputs == 1 else scores[:, 1] - scores[:, 0]).numpy()
    truth = labels.numpy()
    assert found.auc == pytest.approx(roc_auc_score(truth, margin))
    predicted = margin > 0
    assert found.sensitivity == pytest.approx(np.mean(predicted[truth == 1]))
    assert found.specificity == pytest.approx(np.mean(~predicted[truth == 0]))


def test_other_than_two_classes_have_none() -> None:
    assert evaluate_binary(nn.Linear(1, 3), torch.zeros(3, 1), torch.tensor([0, 1, 2])) is None
    assert evaluate_binary(nn.Linear(1, 2), torch.zeros(3, 1), torch.tensor([1, 1, 1])) is None
