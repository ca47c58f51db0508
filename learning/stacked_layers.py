"""The layers of a stacked network: each computes all models of a stack at once.

Activations have two leading dimensions, (models, examples, …). Parameters and buffers are plain
attributes that `StackedNetwork.load` sets.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)


class NotStackable(ValueError):
    """The network has a layer or operation without a stacked form."""


class _StackedLinear(nn.Module):
    weight: Tensor
    bias: Tensor | None

    def __init__(self, one: nn.Linear) -> None:
        super().__init__()
        vars(self)["bias"] = None

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 3:
            raise NotStackable("a linear layer on something else than vectors")
        outputs: Tensor = _Affine.apply(x, self.weight, self.bias)
        return outputs


class _Affine(torch.autograd.Function):
    """x·Wᵀ + b of every model, with the gradient products that are fastest on a CPU.

    Torch's own backward returns the gradient of Wᵀ, which the optimiser would have to transpose.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        columns = weight.transpose(1, 2)
        if bias is None:
            return torch.bmm(x, columns)
        return torch.baddbmm(bias.unsqueeze(1), x, columns)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        return (
            torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None,
            torch.bmm(gradient.transpose(1, 2), x),
            gradient.sum(1) if ctx.needs_input_grad[2] else None,
        )


class _StackedConv2d(nn.Module):
    """All models' filters as the groups of one convolution."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, one: nn.Conv2d) -> None:
        super().__init__()
        if one.padding_mode != "zeros":
            raise NotStackable(f"padding_mode = {one.padding_mode}")
        if isinstance(one.padding, str):
            raise NotStackable(f"padding = {one.padding}")
        self._stride, self._padding, self._dilation = one.stride, one.padding, one.dilation
        self._groups = one.groups
        vars(self)["bias"] = None

    def forward(self, x: Tensor) -> Tensor:
        models = x.shape[0]
        bias = None if self.bias is None else self.bias.reshape(-1)
        y = functional.conv2d(
            _wide(x),
            self.weight.flatten(0, 1),
            bias,
            self._stride,
            self._padding,
            self._dilation,
            self._groups * models,
        )
        return _apart(y, models)


class _StackedBatchNorm(nn.Module):
    """Normalises each model's channels by its own examples."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, one: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        super().__init__()
        if one.momentum is None:
            raise NotStackable("BatchNorm with a cumulative average")
        self._momentum, self._eps = one.momentum, one.eps
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            vars(self)[name] = None

    def forward(self, x: Tensor) -> Tensor:
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        y = functional.batch_norm(
            _wide(x),
            _flat(self.running_mean),
            _flat(self.running_var),
            _flat(self.weight),
            _flat(self.bias),
            training=True,
            momentum=self._momentum,
            eps=self._eps,
        )
        return _apart(y, x.shape[0])


class _StackedGroupNorm(nn.Module):
    """Normalises each image by itself, all models' groups at once."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, one: nn.GroupNorm) -> None:
        super().__init__()
        self._groups, self._eps = one.num_groups, one.eps
        for name in ("weight", "bias"):
            vars(self)[name] = None

    def forward(self, x: Tensor) -> Tensor:
        models = x.shape[0]
        groups = self._groups * models
        y = functional.group_norm(
            _wide(x), groups, _flat(self.weight), _flat(self.bias), eps=self._eps
        )
        return _apart(y, models)


class _StackedPool(nn.Module):
    def __init__(self, one: nn.Module) -> None:
        super().__init__()
        self._pool = copy.deepcopy(one)

    def forward(self, x: Tensor) -> Tensor:
        return _apart(self._pool(_wide(x)), x.shape[0])


class _StackedFlatten(nn.Module):
    def __init__(self, one: nn.Flatten) -> None:
        super().__init__()
        if (one.start_dim, one.end_dim) != (1, -1):
            raise NotStackable("Flatten of some dimensions only")

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2)


def _wide(x: Tensor) -> Tensor:
    """Arrange the models as channels: (examples, models · channels, …).

    The layers below return tensors in this memory order already, so nothing is copied.
    """
    return x.transpose(0, 1).flatten(1, 2)


def _apart(y: Tensor, models: int) -> Tensor:
    return y.reshape(len(y), models, -1, *y.shape[2:]).transpose(0, 1)


def _flat(tensor: Tensor | None) -> Tensor | None:
    # A view: running statistics are updated in place.
    return None if tensor is None else tensor.view(-1)


LAYERS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    nn.Linear: _StackedLinear,
    nn.Conv2d: _StackedConv2d,
    nn.Flatten: _StackedFlatten,
    nn.GroupNorm: _StackedGroupNorm,
    **dict.fromkeys(NORMS, _StackedBatchNorm),
    **dict.fromkeys(_POOLS, _StackedPool),
}
