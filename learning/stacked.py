"""One network for a stack of models: every layer computes all models of the stack at once.

Activations have two leading dimensions, (models, examples, …). The stacked layers compute for each
model what torch's own layers compute for one; operations between layers (a residual sum, a ReLU)
work on any shape and are unchanged. A network that can't be stacked raises NotStackable and is
trained model by model.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .stacked_layers import LAYERS, NORMS, NotStackable
from .trainer import Network

_ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity)
_TRIAL_EXAMPLES = 3


class StackedNetwork:
    """Computes `network`'s function for many models at once."""

    def __init__(self, network: Network, shape: tuple[int, ...]) -> None:
        self._owners: dict[str, tuple[dict[str, object], str]] = {}
        self._module = self._stacked(network.module, "")
        self._module.train()
        state = set(network.parameters) | set(network.buffers)
        if set(self._owners) != state:
            raise NotStackable(f"no layer for {sorted(state ^ set(self._owners))[0]}")
        self.mixes_examples = any(isinstance(m, NORMS) for m in network.module.modules())
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
        if (layer := LAYERS.get(type(module))) is not None:
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
