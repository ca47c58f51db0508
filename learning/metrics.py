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
def outputs_of(module: nn.Module, features: Tensor) -> Tensor:
    """Return a module's outputs in eval mode, in float64."""
    training = module.training
    module.eval()
    try:
        return torch.cat([module(part) for part in torch.split(features, _BATCH)]).to(torch.float64)
    finally:
        module.train(training)
