"""Train all models of a leg in one call per round: for networks with small steps."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from lab.engine.data import HospitalData
from lab.engine.routes import Positions, Work
from lab.engine.stack import Stack
from lab.engine.threads import torch_threads
from lab.engine.training_interface import Anchors, LegMetrics
from learning import optimizers
from learning.losses import losses_of, predictions
from learning.stacked import StackedNetwork
from learning.trainer import Network, optimizer_spec

from .dense import DenseNetwork, DenseStack


class Batched:
    """Trains a stack of models with batched operations, on one thread.

    The operations are too short to be divided: two threads wait for each other longer than they
    compute, most of all beside other work.
    """

    def __init__(
        self, network: Network, stacked: StackedNetwork, stack: Stack, data: HospitalData
    ) -> None:
        self._network, self._settings = stacked, network.settings
        self._spec = optimizer_spec(network.settings)
        self._plain_sgd = (self._spec.kind, self._spec.momentum, self._spec.weight_decay) == (
            "sgd",
            0.0,
            0.0,
        )
        self._dense = DenseNetwork.of(network.module, network.settings.loss)
        self._stack, self._data = stack, data
        self._whole = self._models(stack)
        self.state: dict[str, Tensor] = {}

    def train(self, work: Work, anchors: Anchors) -> LegMetrics:
        with torch_threads(1):
            parts = [self._train_together(work, members, anchors) for members in self._groups(work)]
        if len(parts) == 1:
            return parts[0]
        members = [part.members for part in parts if part.members is not None]
        return LegMetrics(
            torch.cat([part.losses for part in parts]),
            torch.cat([part.accuracies for part in parts]),
            np.concatenate(members),
        )

    def _models(self, stack: Stack) -> "_Models":
        return _Models(stack, self._dense)

    def _groups(self, work: Work) -> list[Positions]:
        """Split the work by batch size where BatchNorm forbids padding.

        Each group is sorted by first round, so that the hospitals of a round are its first ones.
        """
        if not self._network.mixes_examples and work.together:
            return [np.arange(len(work))]
        order = np.argsort(work.first_rounds, kind="stable")
        if not self._network.mixes_examples:
            return [order]
        sizes = self._data.batch_sizes[work.hospitals[order]]
        return [order[sizes == size] for size in np.unique(sizes)]

    def _train_together(self, work: Work, members: Positions, anchors: Anchors) -> LegMetrics:
        first_rounds = work.first_rounds[members]
        if len(members) == self._whole.count and work.together:
            # In the order of the stack: gathering examples is cheaper than gathering models.
            members = np.argsort(work.slots)
            metrics = self._train(self._whole, work, members, first_rounds, anchors)
        else:
            rows = torch.from_numpy(work.slots[members]).to(self._data.labels.device)
            models = self._models(self._stack.take(rows))
            metrics = self._train(models, work, members, first_rounds, anchors)
            self._stack.put(rows, models.stack)
        return LegMetrics(*metrics, members)

    def _train(
        self,
        models: "_Models",
        work: Work,
        members: Positions,
        first_rounds: Positions,
        anchors: Anchors,
    ) -> tuple[Tensor, Tensor]:
        hospitals = work.hospitals[members]
        total: tuple[Tensor, Tensor] | None = None
        active = now = 0
        for round_ in range(int(first_rounds[0]), work.last_round + 1):
            if active < len(members):
                now = int(np.searchsorted(first_rounds, round_, side="right"))
            if now > active:  # more hospitals start in this round
                active = now
                here = hospitals[:active]
                part = (
                    models if active == models.count else self._models(models.stack.first(active))
                )
                if self._dense is None:
                    self._network.load(part.parameters, part.stack.buffers)
                pull = anchors.stacked(here) if self._settings.proximal_mu else None
                weights = self._data.weights(here)
            metrics = self._step(part, here, round_, weights, pull)
            if work.last_round == first_rounds[0]:  # a single round needs no sum
                return metrics
            if total is None:
                total = metrics[0].new_zeros(len(members)), metrics[1].new_zeros(len(members))
            for column, figure in zip(total, metrics, strict=True):
                column[:active] += figure
        rounds = torch.from_numpy(work.last_round + 1 - first_rounds).to(self._data.labels.device)
        if total is None:
            raise ValueError("a leg without rounds")
        return total[0] / rounds, total[1] / rounds

    def _step(
        self,
        models: "_Models",
        hospitals: Positions,
        round_: int,
        weights: Tensor | None,
        pull: tuple[Mapping[str, Tensor], Tensor | None] | None,
    ) -> tuple[Tensor, Tensor]:
        features, labels = self._data.many(hospitals, round_)
        rate = self._settings.learning_rate_at(round_)
        if models.dense is not None:
            fused = rate if self._plain_sgd and pull is None else None
            outputs, losses, named = models.dense.step(features, labels, weights, fused)
        else:
            outputs = self._network(features)
            losses = losses_of(self._settings.loss, outputs, labels, weights)
            # The models are independent, so the gradient of the sum is each model's own.
            gradients = torch.autograd.grad(losses.sum(), list(models.parameters.values()))
            named = dict(zip(models.parameters, gradients, strict=True))
        if pull is not None:
            _pull(named, models.stack.parameters, *pull, mu=self._settings.proximal_mu)
        if named:
            optimizers.step(self._spec, models.parameters, named, models.stack.optimizer, rate)
        hits = predictions(outputs.detach()) == labels
        if weights is None:
            return losses.detach(), hits.mean(1, dtype=losses.dtype)
        return losses.detach(), (hits * weights).sum(1)


class _Models:
    """A stack, its parameters as leaf tensors that require gradients, and its dense form."""

    def __init__(self, stack: Stack, dense: DenseNetwork | None) -> None:
        self.stack = stack
        self.dense = None if dense is None else DenseStack(dense, stack.parameters)
        self.parameters = {n: t.detach().requires_grad_() for n, t in stack.parameters.items()}
        self.count = len(next(iter(self.parameters.values())))


def _pull(
    gradients: dict[str, Tensor],
    parameters: Mapping[str, Tensor],
    anchors: Mapping[str, Tensor],
    anchored: Tensor | None,
    *,
    mu: float,
) -> None:
    """Add ∇ of FedProx's term μ/2‖w − w̄‖², except for models without an aggregate yet."""
    for name, gradient in gradients.items():
        difference = parameters[name] - anchors[name]
        if anchored is not None:
            difference *= anchored.reshape(-1, *[1] * (difference.ndim - 1)).to(difference.device)
        gradients[name] = gradient.add(difference, alpha=mu)
