"""Membership inference: was this record among those a received model was trained on?"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Tensor
from torch.func import vmap

from learning.data import Examples
from learning.losses import losses_of
from learning.privacy.gradients import patient_gradient
from learning.trainer import Network

from .scenario import HandOver, Knowledge, Wave

FALSE_POSITIVE_RATES = (0.1, 0.01)
_Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Rate:
    """A true-positive rate with its 95 % interval (Clopper and Pearson)."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class AttackResult:
    """How well an attack tells members from strangers.

    `at` are the true-positive rates by false-positive rate, `advantage` the largest difference of
    the two.
    """

    attack: str
    at: dict[float, Rate]
    advantage: float
    members: int
    strangers: int


def attack_membership(given: Iterable[Wave], attacker: Knowledge) -> list[AttackResult]:
    """Attack hand-overs in both ways: by the loss, and by the update."""
    inside: dict[str, list[_Scores]] = {"loss": [], "update": []}
    outside: dict[str, list[_Scores]] = {"loss": [], "update": []}
    for wave in given:
        by_update = _UpdateAttack(wave, attacker)
        for hand_over in wave.hand_overs:
            inside["loss"].append(_loss_scores(hand_over, attacker, hand_over.members))
            outside["loss"].append(_loss_scores(hand_over, attacker, attacker.strangers))
            members = by_update.outside(hand_over.members)
            inside["update"].append(by_update.scores(hand_over, members))
            outside["update"].append(by_update.scores(hand_over, by_update.strangers))
    return [
        judged(name, np.concatenate(inside[name]), np.concatenate(outside[name])) for name in inside
    ]


def judged(attack: str, members: _Scores, strangers: _Scores) -> AttackResult:
    """Compare the scores of members and strangers; a larger score says *member*."""
    at = {}
    for rate in FALSE_POSITIVE_RATES:
        threshold = np.quantile(strangers, 1 - rate, method="higher")
        at[rate] = _interval(int((members > threshold).sum()), len(members))
    thresholds = np.unique(np.concatenate([members, strangers]))
    true = 1 - np.searchsorted(np.sort(members), thresholds) / len(members)
    false = 1 - np.searchsorted(np.sort(strangers), thresholds) / len(strangers)
    return AttackResult(attack, at, float((true - false).max()), len(members), len(strangers))


def _loss_scores(hand_over: HandOver, attacker: Knowledge, candidates: Examples) -> _Scores:
    """A model fits what it was trained on: the smaller the loss, the likelier a member."""
    network = attacker.network
    network.load(hand_over.model.parameters, dict(hand_over.model.buffers))
    features, labels = network.tensors(candidates)
    with torch.no_grad():
        outputs = network.module(features).unsqueeze(1)
    one = torch.ones_like(labels, dtype=outputs.dtype).unsqueeze(1)
    losses = losses_of(network.settings.loss, outputs, labels.unsqueeze(1), one)
    scores: _Scores = (-losses).double().numpy()
    return scores


class _UpdateAttack:
    """The update is the mean of the members' gradients: it points along each of them.

    Records are alike, so the update also points along strangers' gradients. What the gradients of
    the attacker's own records can explain is therefore projected out of both.
    """

    def __init__(self, wave: Wave, attacker: Knowledge) -> None:
        self._network = attacker.network
        self._aggregate = wave.aggregate
        self._basis = torch.linalg.qr(self._gradients(attacker.own).T)[0]
        self.strangers = self.outside(attacker.strangers)

    def outside(self, candidates: Examples) -> Tensor:
        """Return the directions of the candidates' gradients outside the own records' span."""
        rest = self._project(self._gradients(candidates))
        lengths: Tensor = torch.linalg.vector_norm(rest, dim=1, keepdim=True)
        return rest / lengths.clamp_min(1e-30)

    def scores(self, hand_over: HandOver, candidates: Tensor) -> _Scores:
        update = self._project(hand_over.update.unsqueeze(0))[0]
        found: _Scores = (candidates @ update / update.norm().clamp_min(1e-30)).numpy()
        return found

    def _gradients(self, examples: Examples) -> Tensor:
        self._network.load(self._aggregate.parameters, dict(self._aggregate.buffers))
        return gradients_of(self._network, examples)

    def _project(self, vectors: Tensor) -> Tensor:
        rest: Tensor = vectors - (vectors @ self._basis) @ self._basis.T
        return rest


def gradients_of(network: Network, examples: Examples) -> Tensor:
    """Return the gradient of each example's loss as the rows of a matrix, in float64."""
    features, labels = network.tensors(examples)
    each = vmap(patient_gradient(network.module, "cross-entropy"), (None, None, 0, 0, 0))
    parameters = {name: value.detach() for name, value in network.parameters.items()}
    one = torch.ones((len(labels), 1), dtype=features.dtype)
    gradients, _ = each(parameters, {}, features.unsqueeze(1), labels.unsqueeze(1), one)
    return torch.cat([g.flatten(1) for g in gradients.values()], dim=1).double()


def _interval(hits: int, count: int) -> Rate:
    low = float(beta.ppf(0.025, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, count - hits)) if hits < count else 1.0
    return Rate(hits / count, low, high)
