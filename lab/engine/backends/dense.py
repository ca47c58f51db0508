"""Linear layers with ReLUs between them: a step of a whole stack, with gradients written out.

Autograd spends more time on its records than such small products take. Plain SGD is added to the
weights within the product that is its gradient.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from learning.losses import Loss


class DenseStack:
    """Computes outputs, losses and gradients of stacked networks of linear layers and ReLUs."""

    def __init__(self, layers: list[str], loss: Loss) -> None:
        self._layers, self._loss = layers, loss

    @staticmethod
    def of(module: nn.Module, loss: Loss) -> "DenseStack | None":
        """Return the stack's form of a network; None if it has other layers, or another order."""
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
        return DenseStack(layers, loss) if layers and not activated and trainable else None

    @torch.no_grad()
    def step(
        self,
        parameters: Mapping[str, Tensor],
        features: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        sgd_rate: float | None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return outputs, losses and gradients; with `sgd_rate` do a step of SGD instead of these.

        `weights` (models, examples) replace the mean where batches differ in size and are padded.
        """
        inputs = [features.flatten(2)]
        for layer in self._layers:
            columns = parameters[f"{layer}.weight"].transpose(1, 2)
            bias = parameters[f"{layer}.bias"].unsqueeze(1)
            outputs = torch.baddbmm(bias, inputs[-1], columns)
            if layer != self._layers[-1]:
                inputs.append(outputs.relu_())
        each, gradient = self._losses(outputs, labels)
        if weights is None:
            losses = each.mean(1)
            gradient /= labels.shape[1]
        else:
            losses = (each * weights).sum(1)
            gradient *= weights.unsqueeze(-1)
        gradients: dict[str, Tensor] = {}
        for place in reversed(range(len(self._layers))):
            weight, bias = (parameters[f"{self._layers[place]}.{n}"] for n in ("weight", "bias"))
            above, x = gradient, inputs[place]
            if place:  # before the weights change
                gradient = torch.ops.aten.threshold_backward(torch.bmm(above, weight), x, 0)
            rows = above.transpose(1, 2)
            if sgd_rate is None:
                gradients[f"{self._layers[place]}.weight"] = torch.bmm(rows, x)
                gradients[f"{self._layers[place]}.bias"] = above.sum(1)
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
        gradient.scatter_add_(-1, places, gradient.new_full((), -1.0).expand(places.shape))
        return each, gradient
