"""Loss functions, and predictions from a model's outputs."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Loss = Literal["cross-entropy", "hinge"]


def loss_of(loss: Loss, outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of a batch. Hinge loss takes one margin per example, labels 0 and 1."""
    if loss == "hinge":
        signs = (2 * labels - 1).to(outputs.dtype)
        return functional.relu(1 - signs * outputs.squeeze(-1)).mean()
    return functional.cross_entropy(outputs, labels)


def losses_of(loss: Loss, outputs: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """Return the loss of every model of a stack: outputs (models, examples, scores).

    `weights` (models, examples) replace the mean where batches differ in size and are padded.
    """
    if loss == "hinge":
        signs = (2 * labels - 1).to(outputs.dtype)
        each = functional.relu(1 - signs * outputs.squeeze(-1))
    else:
        rows = functional.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
        each = rows.view_as(labels)
    return each.mean(1) if weights is None else (each * weights).sum(1)


def predictions(outputs: Tensor) -> Tensor:
    """Return the predicted classes: the largest score, or the sign of a single margin."""
    if outputs.shape[-1] == 1:
        return (outputs.squeeze(-1) > 0).to(torch.int64)
    return outputs.argmax(-1)


def probabilities(outputs: Tensor) -> Tensor:
    """Return the probability of each class: softmax, or the logistic function of a single margin.

    Hinge loss trains margins, not probabilities: they rank examples, but are not calibrated.
    """
    if outputs.shape[-1] == 1:
        second = torch.sigmoid(outputs.to(torch.float64))
        return torch.cat([1 - second, second], dim=-1)
    return torch.softmax(outputs.to(torch.float64), dim=-1)
