"""Rewrite networks so that they compute the same faster; one that would differ is not changed."""

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from learning.trainer import Network

_TRIAL_EXAMPLES = 3
# Wide enough for rounding in single precision; a broken network differs by far more.
_TOLERANCE = 1e-2


def optimise_network(
    networks: list[Network], shape: tuple[int, ...], *, channels_last: bool
) -> None:
    """Rewrite networks of the same architecture for training, if the result is the same."""
    if _computes_the_same(networks[0], pool_before_relu, shape, channels_last=channels_last):
        for network in networks:
            pool_before_relu(network.module)


def pool_before_relu(module: nn.Module) -> None:
    """Swap every ReLU with a max-pooling that follows it in a Sequential.

    max(0, ·) is monotone, so outputs and gradients are the same, and the ReLU has a quarter of the
    values to process, in place. On large images memory access takes most of the time.
    """
    for row in _sequences(module):
        layers = list(row.items())
        for place in range(len(layers) - 1):
            if type(layers[place][1]) is nn.ReLU and type(layers[place + 1][1]) is nn.MaxPool2d:
                # In place: the backward pass of pooling does not need its own output.
                relu = (layers[place][0], nn.ReLU(inplace=True))
                layers[place], layers[place + 1] = layers[place + 1], relu
        # In place: the order of the dictionary is the order of the layers.
        row.clear()
        row.update(layers)


def _sequences(module: nn.Module) -> Iterator[dict[str, nn.Module]]:
    """Yield the layers of every Sequential as its own mutable dictionary, in order.

    `named_children` would list a layer that is used twice only once. Subclasses are skipped: they
    may use their layers by name.
    """
    for part in list(module.modules()):
        if type(part) is nn.Sequential:
            yield part._modules


def _computes_the_same(
    network: Network,
    rewrite: Callable[[nn.Module], None],
    shape: tuple[int, ...],
    *,
    channels_last: bool,
) -> bool:
    """Compare one step on copies: a plug-in's forward may depend on the layers as they were."""
    examples = torch.randn(
        (_TRIAL_EXAMPLES, *shape), generator=torch.Generator().manual_seed(0)
    ).to(network.device, network.dtype)
    if channels_last and examples.ndim == 4:
        examples = examples.to(memory_format=torch.channels_last)
    plain, rewritten = copy.deepcopy(network.module), copy.deepcopy(network.module)
    try:
        rewrite(rewritten)
        expected, found = _step(plain, examples), _step(rewritten, examples)
    except Exception:  # a plug-in may do anything
        return False
    largest = max(float(tensor.abs().max()) for tensor in expected if tensor.numel())
    return len(found) == len(expected) and all(
        torch.allclose(got, wanted, rtol=_TOLERANCE, atol=_TOLERANCE * largest)
        for got, wanted in zip(found, expected, strict=True)
    )


def _step(module: nn.Module, examples: Tensor) -> list[Tensor]:
    """Return outputs, gradients and buffers of a step in training mode."""
    module.train()
    gpus = [examples.device] if examples.device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(0)  # dropout
        outputs = module(examples)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(outputs.square().sum(), parameters, allow_unused=True)
    known = [gradient for gradient in gradients if gradient is not None]
    buffers = [buffer.to(outputs.dtype) for buffer in module.buffers()]
    return [outputs.detach(), *known, *buffers]
