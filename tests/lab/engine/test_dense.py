"""Written-out gradients of linear layers with ReLUs, against autograd on single models."""

from typing import Any

import pytest
import torch
from torch import nn

from lab.engine.backends.dense import DenseNetwork, DenseStack
from learning.losses import Loss, loss_of
from learning.models import build

MODELS, EXAMPLES = 3, 5


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("model", "loss", "options"),
    [
        ("mlp", "cross-entropy", {"hidden": (7, 4)}),
        ("linear", "cross-entropy", {}),
        ("linear", "hinge", {"outputs": 1}),
    ],
)
def test_a_step_is_that_of_each_model_alone(
    model: str, loss: Loss, options: dict[str, Any], fused: bool
) -> None:
    networks = [
        build(model, shape=(1, 2, 3), classes=2, options=options, seed=seed).double()
        for seed in range(MODELS)
    ]
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(MODELS, EXAMPLES, 1, 2, 3, generator=rng, dtype=torch.float64)
    labels = torch.randint(2, (MODELS, EXAMPLES), generator=rng)
    sizes = [5, 3, 1]  # padded batches of different sizes
    weights = torch.zeros(MODELS, EXAMPLES, dtype=torch.float64)
    for row, size in enumerate(sizes):
        weights[row, :size] = 1 / size
    stack = {
        name: torch.stack([dict(network.named_parameters())[name].detach() for network in networks])
        for name, _ in networks[0].named_parameters()
    }
    dense = DenseNetwork.of(networks[0], loss)
    assert dense is not None
    rate = 0.3 if fused else None
    _, losses, gradients = DenseStack(dense, stack).step(features, labels, weights, rate)
    for row, (network, size) in enumerate(zip(networks, sizes, strict=True)):
        alone = loss_of(loss, network(features[row, :size]), labels[row, :size])
        assert losses[row].item() == pytest.approx(alone.item(), rel=1e-12)
        names = [name for name, _ in network.named_parameters()]
        expected = torch.autograd.grad(alone, list(network.parameters()))
        for name, gradient in zip(names, expected, strict=True):
            before = dict(network.named_parameters())[name].detach()
            got = (before - stack[name][row]) / 0.3 if fused else gradients[name][row]
            assert torch.allclose(got, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU()),
        nn.Sequential(nn.Linear(3, 4, bias=False)),
        nn.Linear(3, 2),
    ],
)
def test_other_networks_are_left_to_autograd(network: nn.Module) -> None:
    assert DenseNetwork.of(network, "cross-entropy") is None
