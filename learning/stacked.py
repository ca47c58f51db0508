"""One network for a stack of models: every layer computes all models of the stack at once.

Activations have two leading dimensions, (models, examples, …). The layers below compute for each
model what torch's own layers compute for one; operations between layers (a residual sum, a ReLU)
work on any shape and are unchanged. A network that can't be stacked raises NotStackable and is
trained model by model.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .trainer import Network

_ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_TRIAL_EXAMPLES = 3


class NotStackable(ValueError):
    """The network has a layer or operation without a stacked form."""


class StackedNetwork:
    """Computes `network`'s function for many models at once."""

    def __init__(self, network: Network, shape: tuple[int, ...]) -> None:
        self._owners: dict[str, tuple[dict[str, object], str]] = {}
        self._module = self._stacked(network.module, "")
        self._module.train()
        state = set(network.parameters) | set(network.buffers)
        if set(self._owners) != state:
            raise NotStackable(f"no layer for {sorted(state ^ set(self._owners))[0]}")
        self.mixes_examples = any(isinstance(m, _NORMS) for m in network.module.modules())
        self._check(network, shape)

    def load(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """Use these stacked tensors; running statistics are updated in place."""
        for tensors in (parameters, buffers):
            for name, tensor in tensors.items():
                attributes, attribute = self._owners[name]
                attributes[attribute] = tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Return the models' outputs in training mode: (models, examples, scores)."""
        outputs: Tensor = self._module(features)
        return outputs

    def _stacked(self, module: nn.Module, path: str) -> nn.Module:
        if type(module) in _ELEMENTWISE:
            return copy.deepcopy(module)
        if (layer := _LAYERS.get(type(module))) is not None:
            stacked = layer(module)
            for name in module.state_dict(keep_vars=True):
                self._owners[f"{path}{name}"] = (vars(stacked), name)
            return stacked
        # `named_children` would list a module that is used twice only once.
        children = {name: child for name, child in module._modules.items() if child is not None}
        if not children:
            raise NotStackable(f"no stacked form of {type(module).__name__}")
        clone = copy.copy(module)
        # A new dictionary: the copy shares the original's.
        clone._modules = {name: self._stacked(m, f"{path}{name}.") for name, m in children.items()}
        return clone

    def _check(self, network: Network, shape: tuple[int, ...]) -> None:
        """Compare with the network itself: a custom forward may do more than its layers."""
        module = copy.deepcopy(network.module).train()
        features = torch.randn(
            (2, _TRIAL_EXAMPLES, *shape),
            generator=torch.Generator().manual_seed(0),
        ).to(network.device, network.dtype)
        twice = [
            {name: torch.stack([tensor.detach(), tensor.detach()]) for name, tensor in part.items()}
            for part in (network.parameters, network.buffers)
        ]
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                self.load(*twice)
                got = self(features)
                wanted = torch.stack([module(features[0]), module(features[1])])
        except Exception as error:  # a plug-in's forward may do anything
            raise NotStackable(f"its forward fails on a stack: {error}") from error
        if got.shape != wanted.shape or not torch.allclose(got, wanted, rtol=1e-3, atol=1e-3):
            raise NotStackable("it computes something else on a stack")


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


_LAYERS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    nn.Linear: _StackedLinear,
    nn.Conv2d: _StackedConv2d,
    nn.Flatten: _StackedFlatten,
    **dict.fromkeys(_NORMS, _StackedBatchNorm),
    **dict.fromkeys(_POOLS, _StackedPool),
}
