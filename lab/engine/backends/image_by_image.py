"""Convolution, BatchNorm and max-pooling of large images, one image at a time.

Layer by layer, the output of a layer for a whole batch has left the cache before the next layer
reads it; on large images that takes longer than the arithmetic. Here each image passes through all
three layers before the next one starts. BatchNorm with a positive weight is monotone, so pooling
can come first and only the pooled values are normalised.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .convolution import (
    ChannelsLastConv2d,
    ConvGeometry,
    bias_gradient,
    geometry_of,
    inputs_gradient,
    weights_gradient,
)
from .sequences import sequences

# Outputs of the convolution for a batch; fewer fit into the cache anyway.
_LARGE = 2**20


def image_by_image(module: nn.Module) -> None:
    """Fuse every convolution, BatchNorm and max-pooling that follow each other in a Sequential."""
    for layers in sequences(module):
        joined: list[tuple[str, nn.Module]] = []
        for name, layer in layers.items():
            joined.append((name, layer))
            if (block := _block([layer for _, layer in joined[-3:]])) is not None:
                joined[-3:] = [(joined[-3][0], block)]
        layers.clear()
        layers.update(joined)


def _block(layers: list[nn.Module]) -> "_Block | None":
    if len(layers) < 3:
        return None
    convolution, norm, pool = layers
    if (
        isinstance(convolution, nn.Conv2d)
        and type(convolution) in (nn.Conv2d, ChannelsLastConv2d)
        and geometry_of(convolution) is not None
        and type(norm) is nn.BatchNorm2d
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and type(pool) is nn.MaxPool2d
        and not (pool.ceil_mode or pool.return_indices)
        and not any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)
    ):
        return _Block(convolution, norm, pool)
    return None


class _Block(nn.Module):
    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d, pool: nn.MaxPool2d) -> None:
        super().__init__()
        self.convolution, self.norm, self.pool = convolution, norm, pool

    def forward(self, x: Tensor) -> Tensor:
        weight, norm = self.convolution.weight, self.norm
        if (
            not (norm.training and torch.is_grad_enabled())
            or x.shape[0] * x.shape[2] * x.shape[3] * len(weight) < _LARGE
            or not bool((norm.weight > 0).all())
        ):
            return self._layer_by_layer(x)
        y: Tensor = _Joined.apply(x, weight, self.convolution.bias, norm.weight, norm.bias, self)
        return y

    def _layer_by_layer(self, x: Tensor) -> Tensor:
        y: Tensor = self.pool(self.norm(self.convolution(x)))
        return y

    def geometry(self) -> ConvGeometry:
        if (geometry := geometry_of(self.convolution)) is None:
            raise ValueError("this convolution can't be fused")
        return geometry

    def update_running(self, mean: Tensor, variance: Tensor, numbers: int) -> None:
        """Update the running statistics with a batch's, as BatchNorm does."""
        norm = self.norm
        if norm.running_mean is None or norm.running_var is None:
            raise ValueError("this BatchNorm can't be fused")
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum or 0)
        norm.running_var.lerp_(variance * (numbers / (numbers - 1)), norm.momentum or 0)


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gamma: Tensor,
        beta: Tensor,
        block: _Block,
    ) -> Tensor:
        geometry, window = block.geometry(), _window(block.pool)
        images, statistics, tops, places = [], [], [], []
        for one in x.unsqueeze(1):
            image = functional.conv2d(one, weight, bias, *geometry)
            statistics.append(torch.ops.aten.batch_norm_update_stats(image, None, None, 0.0))
            top, place = torch.ops.aten.max_pool2d_with_indices(image, *window, False)
            images.append(image)
            tops.append(top)
            places.append(place)
        means, variances = (torch.stack(column) for column in zip(*statistics, strict=True))
        mean = means.mean(0)
        variance = variances.mean(0) + (means - mean).square_().mean(0)
        numbers = len(images) * images[0].shape[2] * images[0].shape[3]
        block.update_running(mean, variance, numbers)
        inverse = (variance + block.norm.eps).rsqrt()
        scale = gamma * inverse
        top = torch.cat(tops)
        ctx.save_for_backward(x, weight, gamma, mean, inverse, top, *images, *places)
        ctx.geometry, ctx.window, ctx.numbers = geometry, window, numbers
        return torch.addcmul(_channels(beta - mean * scale), top, _channels(scale))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, gamma, mean, inverse, top, *saved = ctx.saved_tensors
        images, places = saved[: len(x)], saved[len(x) :]
        # BatchNorm's gradient is γ/σ·(g − mean(g) − x̂·mean(g·x̂)). g is zero except where pooling
        # took a value: there the gradient has the term γ/σ·g, everywhere a multiple of x plus a
        # constant.
        sums = bias_gradient(gradient)
        products = (bias_gradient(gradient * top) - mean * sums) * inverse
        scale = gamma * inverse
        multiple = -scale * inverse * products / ctx.numbers
        constant = _channels(-scale * sums / ctx.numbers - multiple * mean)
        multiple = _channels(multiple)
        scaled = gradient * _channels(scale)

        of_inputs, _, of_bias = ctx.needs_input_grad[:3]
        inputs: list[Tensor] = []
        weights = torch.zeros_like(weight)
        bias = torch.zeros_like(sums) if of_bias else None
        for number, (image, place) in enumerate(zip(images, places, strict=True)):
            here = slice(number, number + 1)
            one = torch.ops.aten.max_pool2d_with_indices_backward(
                scaled[here], image, *ctx.window, False, place
            )
            one.addcmul_(image, multiple).add_(constant)
            weights += weights_gradient(one, x[here], weight, ctx.geometry)
            if bias is not None:
                bias += bias_gradient(one)
            if of_inputs:
                inputs.append(inputs_gradient(one, x[here], weight, ctx.geometry))
        return torch.cat(inputs) if of_inputs else None, weights, bias, products, sums, None


def _window(pool: nn.MaxPool2d) -> tuple[list[int], ...]:
    sizes = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    return tuple([size, size] if isinstance(size, int) else list(size) for size in sizes)


def _channels(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)
