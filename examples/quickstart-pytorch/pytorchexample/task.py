"""The model, the data and how they meet: handwritten digits, a few at each node."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXAMPLES_PER_NODE = 8
TEST_EXAMPLES = 400


class Net(nn.Module):
    """A small network for images of 8 by 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(x)))


def load_data(
    partition_id: int, num_partitions: int, batch_size: int
) -> tuple[DataLoader, DataLoader]:
    """Return a node's training examples, and as many that it never trains on."""
    images, labels = _digits()
    mine = torch.arange(TEST_EXAMPLES + partition_id, len(images), num_partitions)
    if len(mine) < 2 * EXAMPLES_PER_NODE:
        raise ValueError(f"{num_partitions} nodes are too many for {len(images)} images")
    train, held_out = mine[:EXAMPLES_PER_NODE], mine[EXAMPLES_PER_NODE : 2 * EXAMPLES_PER_NODE]
    return (
        DataLoader(TensorDataset(images[train], labels[train]), batch_size=batch_size),
        DataLoader(TensorDataset(images[held_out], labels[held_out]), batch_size=batch_size),
    )


def load_test_data() -> DataLoader:
    """Return the server's examples, which no node has."""
    images, labels = _digits()
    return DataLoader(TensorDataset(images[:TEST_EXAMPLES], labels[:TEST_EXAMPLES]), batch_size=128)


def train(
    net: nn.Module, trainloader: DataLoader, epochs: int, lr: float, device: torch.device
) -> float:
    """Train for some passes over the examples; return the mean loss."""
    net.to(device).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    total = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(trainloader))


def test(net: nn.Module, testloader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Return loss and accuracy."""
    net.to(device).eval()
    loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in testloader:
            outputs, targets = net(images.to(device)), labels.to(device)
            loss += nn.functional.cross_entropy(outputs, targets, reduction="sum").item()
            correct += int((outputs.argmax(dim=1) == targets).sum())
            count += len(targets)
    return loss / count, correct / count


@cache  # a node is asked many times
def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all 1,797 images, which come with scikit-learn, in a fixed random order."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    return images[order], torch.tensor(digits.target)[order]
