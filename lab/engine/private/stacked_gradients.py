"""Sums of clipped gradients for all models of a stack: batched, or model by model."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from lab.engine.routes import Positions
from learning.data import Examples
from learning.losses import predictions
from learning.privacy.gradients import (
    PatientGradients,
    Patients,
    patient_gradient,
    refuse_mixed_patients,
    sum_clipped,
)
from learning.privacy.noise import Tensors
from learning.trainer import Network

# Numbers in all patients' gradients of one pass: 32 MB in float32, which larger passes don't beat.
_NUMBERS_AT_ONCE = 1 << 23
# Padding to the hospital with most patients and the patient with most examples may cost this much.
_MOST_PADDING = 4
_Drawn = Sequence[NDArray[np.bool_]] | None


class StackedGradients(Protocol):
    """Computes the clipped sums of several models, each at its hospital."""

    patients: NDArray[np.int64]
    """The number of patients of each hospital."""

    batched: bool

    def sums(
        self, models: Tensors, hospitals: Positions, clip: float, drawn: _Drawn
    ) -> tuple[Tensors, Tensor, Tensor]:
        """Return the sums, and each model's mean loss and accuracy.

        `drawn` selects the patients of each hospital's batch; None means all.
        """


def stacked_gradients(
    network: Network, examples: Sequence[Examples], *, batched: bool
) -> StackedGradients:
    """Return the batched computation if it was asked for and fits the network and the data."""
    if batched and _padded_size(examples) <= _MOST_PADDING * sum(map(len, examples)):
        try:
            return _Batched(network, examples)
        except RuntimeError:  # an operation without a rule for `vmap` over models
            pass
    return _Looped(network, examples)


class _Batched:
    """All patients of all hospitals in one call, padded to the largest hospital."""

    batched = True

    def __init__(self, network: Network, examples: Sequence[Examples]) -> None:
        refuse_mixed_patients(network.module, network.settings.model)
        each = patient_gradient(network.module, network.settings.loss)
        patients = vmap(each, in_dims=(None, None, 0, 0, 0), randomness="different")
        self._models = vmap(patients, in_dims=(0, None, 0, 0, 0), randomness="different")
        self._buffers = {name: buffer.detach() for name, buffer in network.buffers.items()}
        hospitals = [Patients.of(network, each) for each in examples]
        self.patients = np.array([len(each) for each in hospitals])
        self._tables(network, hospitals)
        numbers = sum(parameter.numel() for parameter in network.parameters.values())
        self._at_once = max(1, _NUMBERS_AT_ONCE // (numbers * self._weights.shape[1]))
        one = {name: value.detach().unsqueeze(0) for name, value in network.parameters.items()}
        self.sums(one, np.zeros(1, dtype=np.int64), 1.0, None)  # fails here or never

    def sums(
        self, models: Tensors, hospitals: Positions, clip: float, drawn: _Drawn
    ) -> tuple[Tensors, Tensor, Tensor]:
        parts = [
            self._some(
                {name: tensor[first : first + self._at_once] for name, tensor in models.items()},
                hospitals[first : first + self._at_once],
                clip,
                None if drawn is None else drawn[first : first + self._at_once],
            )
            for first in range(0, len(hospitals), self._at_once)
        ]
        sums = {name: torch.cat([part[0][name] for part in parts]) for name in models}
        return sums, torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts])

    def _some(
        self, models: Tensors, hospitals: Positions, clip: float, drawn: _Drawn
    ) -> tuple[Tensors, Tensor, Tensor]:
        rows = torch.from_numpy(hospitals).to(self._weights.device)
        weights, labels = self._weights[rows], self._labels[rows]
        if drawn is not None:
            chosen = torch.zeros(weights.shape[:2], dtype=weights.dtype)
            for number, each in enumerate(drawn):
                chosen[number, : len(each)] = torch.from_numpy(each).to(weights.dtype)
            weights = weights * chosen.to(weights.device).unsqueeze(-1)
        gradients, (losses, outputs) = self._models(
            models, self._buffers, self._features[rows], labels, weights
        )
        sums, _ = sum_clipped(gradients, clip, models=1, present=weights.amax(-1))
        count = weights.flatten(1).sum(1).clamp_min(1)
        hits = ((predictions(outputs) == labels) * weights).flatten(1).sum(1)
        return sums, losses.sum(1) / count, hits / count

    def _tables(self, network: Network, hospitals: Sequence[Patients]) -> None:
        """Arrange examples as (hospitals, patients, examples of a patient, …)."""
        most = max(map(len, hospitals))
        longest = max(len(rows) for each in hospitals for rows in each.rows)
        shape = (len(hospitals), most, longest)
        example = hospitals[0].features.shape[1:]
        self._features = torch.zeros(*shape, *example, dtype=network.dtype, device=network.device)
        self._labels = torch.zeros(shape, dtype=torch.int64, device=network.device)
        self._weights = torch.zeros(shape, dtype=network.dtype, device=network.device)
        for h, each in enumerate(hospitals):
            for p, rows in enumerate(each.rows):
                self._features[h, p, : len(rows)] = each.features[rows]
                self._labels[h, p, : len(rows)] = each.labels[rows]
                self._weights[h, p, : len(rows)] = 1


class _Looped:
    """One model after the other: for networks too large for a stack, and unlike hospitals."""

    batched = False

    def __init__(self, network: Network, examples: Sequence[Examples]) -> None:
        self._network = network
        self._gradients = PatientGradients(network)
        self._patients = [Patients.of(network, each) for each in examples]
        self.patients = np.array([len(each) for each in self._patients])

    def sums(
        self, models: Tensors, hospitals: Positions, clip: float, drawn: _Drawn
    ) -> tuple[Tensors, Tensor, Tensor]:
        found = []
        for number, hospital in enumerate(hospitals.tolist()):
            for name, parameter in self._network.parameters.items():
                parameter.data = models[name][number]
            patients = self._patients[hospital]
            chosen = patients if drawn is None else patients.take(drawn[number])
            found.append(self._gradients.clipped_sum(chosen, clip))
        sums = {name: torch.stack([each.gradients[name] for each in found]) for name in models}
        losses = torch.stack([each.loss for each in found])
        return sums, losses, torch.stack([each.accuracy for each in found])


def _padded_size(examples: Sequence[Examples]) -> int:
    counts = [
        np.bincount(np.unique(each.groups, return_inverse=True)[1])
        if each.groups is not None
        else np.ones(len(each), dtype=np.int64)
        for each in examples
    ]
    return len(examples) * max(map(len, counts)) * int(max(each.max() for each in counts))
