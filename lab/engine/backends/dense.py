"""Linear layers with ReLUs between them: a step of a whole stack, with gradients written out.

Autograd spends more time on its records than such small products take. Plain SGD is added to the
weights within the product that is its gradient.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from learning.losses import Loss


@dataclass(frozen=True)
class DenseNetwork:
    """The linear layers of a network, by name, with a ReLU between any two."""

    layers: tuple[str, ...]
    loss: Loss

    @staticmethod
    def of(module: nn.Module, loss: Loss) -> "DenseNetwork | None":
        """Return the layers of a network; None if it has other layers, or another order."""
        if type(module) is not nn.Sequential:
            return None
        layers: list[str] = []
        activated = True  # whether a linear layer may follow
        for name, layer in module.named_children():
            match layer:
                case nn.Flatten() if not layers and (layer.start_dim, layer.end_dim) == (1, -1):
                    pass
                case nn.Linear() if activated and layer.bias is not None:
                    layers.append(name)
                    activated = False
                case nn.ReLU() if layers and not activated:
                    activated = True
                case _:
                    return None
        trainable = all(parameter.requires_grad for parameter in module.parameters())
        if not layers or activated or not trainable:
            return None
        return DenseNetwork(tuple(layers), loss)


class DenseStack:
    """Computes outputs, losses and gradients of a stack of networks, or trains it with SGD.

    `parameters` have a leading dimension for the model. They are read and changed in place.
    """

    def __init__(self, network: DenseNetwork, parameters: Mapping[str, Tensor]) -> None:
        self._loss = network.loss
        self._layers = []
        for name in network.layers:
            weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
            self._layers.append(
                _Layer(name, weight, bias, weight.transpose(1, 2), bias.unsqueeze(1))
            )

    def step(
        self,
        features: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        sgd_rate: float | None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return outputs, losses and gradients; with `sgd_rate` do a step of SGD instead of these.

        `weights` (models, examples) replace the mean where batches differ in size and are padded.
        """
        inputs = [features.flatten(2)]
        *hidden, last = self._layers
        for layer in hidden:
            inputs.append(torch.baddbmm(layer.row, inputs[-1], layer.columns).relu_())
        outputs = torch.baddbmm(last.row, inputs[-1], last.columns)
        each, gradient = self._losses(outputs, labels)
        if weights is None:
            losses = each.mean(1)
            gradient /= labels.shape[1]
        else:
            losses = (each * weights).sum(1)
            gradient *= weights.unsqueeze(-1)
        gradients: dict[str, Tensor] = {}
        for place, (name, weight, bias, *_) in reversed(list(enumerate(self._layers))):
            above, x = gradient, inputs[place]
            if place:  # before the weights change
                gradient = torch.ops.aten.threshold_backward(torch.bmm(above, weight), x, 0)
            rows = above.transpose(1, 2)
            if sgd_rate is None:
                gradients[f"{name}.weight"] = torch.bmm(rows, x)
                gradients[f"{name}.bias"] = above.sum(1)
            else:
                weight.baddbmm_(rows, x, alpha=-sgd_rate)
                bias.sub_(above.sum(1), alpha=sgd_rate)
        return outputs, losses, gradients

    def _losses(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each example and its gradient by the outputs."""
        if self._loss == "hinge":
            signs = (2 * labels - 1).to(outputs.dtype)
            each = functional.relu(1 - signs * outputs.squeeze(-1))
            return each, (-signs * (each > 0)).unsqueeze(-1)
        places = labels.unsqueeze(-1)
        logarithms = torch.log_softmax(outputs, -1)
        each = -logarithms.gather(-1, places).squeeze(-1)
        gradient = logarithms.exp_()
        gradient.scatter_(-1, places, -1.0, reduce="add")
        return each, gradient


class _Layer(NamedTuple):
    """A linear layer of all models: its parameters, and views of them as the products take them."""

    name: str
    weight: Tensor
    bias: Tensor
    columns: Tensor
    row: Tensor
