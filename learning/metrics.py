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


@torch.no_grad()
def outputs_of(module: nn.Module, features: Tensor) -> Tensor:
    """Return a module's outputs in eval mode, in float64."""
    training = module.training
    module.eval()
    try:
        batches = torch.split(features, _BATCH)
        return torch.cat([module(batch) for batch in batches]).to(torch.float64)
    finally:
        module.train(training)
