"""Federated daisy-chaining in plain PyTorch: a loop over the clients.

It uses modules, `torch.optim`, a shuffled list for the hand-over and a mean of state dictionaries
for the aggregation. The lab's engine is measured against it.
"""

import copy
import random
import time

import torch
from torch import Tensor, nn

from learning.local_data import load_dataset, load_partitions
from learning.models import build
from server_app.config.run_config import Settings


class PlainLoop:
    """Clients, each with a model, an optimiser and data."""

    def __init__(self, settings: Settings) -> None:
        seed = settings.algorithm.seed
        dataset = load_dataset(settings.local, seed)
        partitions = load_partitions(settings.local, settings.algorithm.hospitals, seed)
        first = build(
            settings.training.model,
            shape=dataset.shape,
            classes=len(dataset.classes),
            options=settings.training.options,
            seed=0,
        )
        self._models = [copy.deepcopy(first).train() for _ in partitions]
        self._optimizers = [_optimizer(settings, model) for model in self._models]
        self._data = [
            (torch.from_numpy(partition.train.features), torch.from_numpy(partition.train.labels))
            for partition in partitions
        ]
        self._loss = _hinge if settings.training.loss == "hinge" else nn.CrossEntropyLoss()
        self._settings = settings
        self._round = 0

    def client_rounds_per_s(self, rounds: int) -> float:
        """Train more rounds and return the speed."""
        began = time.perf_counter()
        for _ in range(rounds):
            self._one_round()
        return rounds * len(self._models) / (time.perf_counter() - began)

    def _one_round(self) -> None:
        for model, optimizer, (features, labels) in zip(
            self._models, self._optimizers, self._data, strict=True
        ):
            optimizer.zero_grad()
            loss = self._loss(model(features), labels)
            loss.backward()
            optimizer.step()
        self._round += 1
        if self._round % self._settings.algorithm.aggregation_period == 0:
            self._aggregate()
        else:
            pairs = list(zip(self._models, self._optimizers, strict=True))
            random.shuffle(pairs)
            self._models, self._optimizers = [list(column) for column in zip(*pairs, strict=True)]

    def _aggregate(self) -> None:
        states = [model.state_dict() for model in self._models]
        mean = {
            name: torch.stack([state[name].float() for state in states]).mean(0)
            for name in states[0]
        }
        for model in self._models:
            model.load_state_dict(mean)


def _optimizer(settings: Settings, model: nn.Module) -> torch.optim.Optimizer:
    rate = settings.training.learning_rate
    if settings.training.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=rate)
    return torch.optim.SGD(model.parameters(), lr=rate)


def _hinge(outputs: Tensor, labels: Tensor) -> Tensor:
    return torch.relu(1 - (2 * labels - 1) * outputs.squeeze(-1)).mean()
