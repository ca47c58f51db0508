"""Evaluate a model on examples, in eval mode."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .losses import Loss, loss_of, predictions

_BATCH = 512


@dataclass(frozen=True)
class Metrics:
    """Loss and accuracy; balanced accuracy is the mean accuracy over the classes that occur."""

    loss: float
    accuracy: float
    balanced_accuracy: float


@dataclass(frozen=True)
class ClassCounts:
    """The mean loss, and by class: how many examples there are, and how many are correct."""

    loss: float
    examples: tuple[int, ...]
    correct: tuple[int, ...]


@dataclass(frozen=True)
class BinaryMetrics:
    """Figures for two classes, of which the second (label 1) is the finding.

    Sensitivity and specificity are those of the model's own decision. AUC is the probability that
    an example with the finding has the larger score than one without; ties count half.
    """

    auc: float
    sensitivity: float
    specificity: float


def evaluate(module: nn.Module, features: Tensor, labels: Tensor, loss: Loss) -> Metrics:
    """Evaluate in eval mode: BatchNorm uses its running statistics, not the test batch's."""
    outputs = outputs_of(module, features)
    hits = (predictions(outputs) == labels).cpu().numpy()
    truth = labels.cpu().numpy()
    per_class = [float(hits[truth == label].mean()) for label in np.unique(truth)]
    return Metrics(
        loss=float(loss_of(loss, outputs, labels)),
        accuracy=float(hits.mean()),
        balanced_accuracy=float(np.mean(per_class)),
    )


def count_correct(
    module: nn.Module, features: Tensor, labels: Tensor, loss: Loss, classes: int
) -> ClassCounts:
    """Evaluate in eval mode, and count by class."""
    outputs = outputs_of(module, features)
    right = labels[predictions(outputs) == labels]

    def counted(chosen: Tensor) -> tuple[int, ...]:
        return tuple(np.bincount(chosen.cpu().numpy(), minlength=classes).tolist())

    return ClassCounts(float(loss_of(loss, outputs, labels)), counted(labels), counted(right))


@torch.no_grad()
def evaluate_binary(module: nn.Module, features: Tensor, labels: Tensor) -> BinaryMetrics | None:
    """Evaluate in eval mode; None where the examples do not have exactly the labels 0 and 1."""
    if torch.unique(labels).tolist() != [0, 1]:
        return None
    outputs = outputs_of(module, features)
    if outputs.shape[-1] > 2:
        return None
    scores = outputs[:, 0] if outputs.shape[-1] == 1 else outputs[:, 1] - outputs[:, 0]
    found = labels == 1
    with_finding = scores[found].sort().values
    without = scores[~found].sort().values
    below = torch.searchsorted(without, with_finding, right=False)
    up_to = torch.searchsorted(without, with_finding, right=True)
    wins = (below + up_to).to(torch.float64).sum() / 2
    predicted = predictions(outputs) == 1
    return BinaryMetrics(
        auc=float(wins / (len(with_finding) * len(without))),
        sensitivity=float(predicted[found].to(torch.float64).mean()),
        specificity=float((~predicted[~found]).to(torch.float64).mean()),
    )


@torch.no_grad()
def outputs_of(module: nn.Module, features: Tensor) -> Tensor:
    """Return a module's outputs in eval mode, in float64."""
    training = module.training
    module.eval()
    try:
        return torch.cat([module(part) for part in torch.split(features, _BATCH)]).to(torch.float64)
    finally:
        module.train(training)
