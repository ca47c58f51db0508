"""The sum of all patients' gradients, each clipped to a norm: what one patient can change."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from learning.data import Examples
from learning.losses import Loss, losses_of, predictions
from learning.models import ModelError
from learning.trainer import Network

# Numbers in all patients' gradients of one pass: 128 MB in float32.
_NUMBERS_AT_ONCE = 1 << 25
_IMAGES_AT_ONCE = 512
# Keeps the clipped norm below C in spite of float32's rounding.
_MARGIN = 1 - 1e-6


class PrivacyError(ModelError):
    """The mechanism can't be applied; the message says what to change."""


@dataclass(frozen=True, eq=False)
class Patients:
    """A hospital's examples, patient by patient: `rows[i]` are the examples of patient i."""

    features: Tensor
    labels: Tensor
    rows: tuple[NDArray[np.int64], ...]

    @staticmethod
    def of(network: Network, examples: Examples) -> "Patients":
        """Group examples by patient: by the group column, else each example is a patient."""
        groups = np.arange(len(examples)) if examples.groups is None else examples.groups
        _, numbers = np.unique(groups, return_inverse=True)
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=1))[:-1]
        rows = tuple(np.split(order.astype(np.int64), ends)) if len(order) else ()
        return Patients(*network.tensors(examples), rows)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: NDArray[np.bool_]) -> "Patients":
        """Return the chosen patients only."""
        rows = tuple(self.rows[i] for i in np.flatnonzero(chosen))
        return Patients(self.features, self.labels, rows)


@dataclass(frozen=True)
class ClippedSum:
    """The sum of clipped gradients; mean loss and accuracy of the examples, which must not leave.

    `norms` are the patients' norms before clipping, in the order of the patients.
    """

    gradients: dict[str, Tensor]
    loss: Tensor
    accuracy: Tensor
    norms: Tensor


class PatientGradients:
    """Computes clipped sums for one network; made once, used in every round."""

    def __init__(self, network: Network) -> None:
        refuse_mixed_patients(network.module, network.settings.model)
        self.network = network
        self._each = vmap(
            patient_gradient(network.module, network.settings.loss),
            in_dims=(None, None, 0, 0, 0),
            randomness="different",
        )
        numbers = sum(parameter.numel() for parameter in network.parameters.values())
        self._at_once = max(1, _NUMBERS_AT_ONCE // numbers)

    def clipped_sum(self, patients: Patients, clip: float) -> ClippedSum:
        """Return the sum over patients of each one's gradient, clipped to norm `clip`.

        A patient's gradient is the sum over that patient's examples. A gradient that is not finite
        counts as zero.
        """
        parameters = {n: p.detach() for n, p in self.network.parameters.items()}
        total = {name: torch.zeros_like(value) for name, value in parameters.items()}
        norms = torch.zeros(len(patients), dtype=torch.float64, device=self.network.device)
        loss = norms.new_zeros(())
        hits = norms.new_zeros(())
        for members, rows in _passes(patients, self._at_once):
            gradients, losses, right = self._gradients(parameters, patients, rows)
            sums, norms[torch.from_numpy(members)] = sum_clipped(gradients, clip)
            for name, part in sums.items():
                total[name] += part
            loss += losses
            hits += right
        count = max(1, sum(map(len, patients.rows)))
        return ClippedSum(total, loss / count, hits / count, norms)

    def _gradients(
        self, parameters: dict[str, Tensor], patients: Patients, rows: NDArray[np.int64]
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Return one gradient for each patient of a pass, each with equally many examples."""
        buffers = self.network.buffers
        gradients: dict[str, Tensor] = {}
        losses = hits = torch.zeros((), dtype=torch.float64)
        step = max(1, _IMAGES_AT_ONCE // len(rows))
        for first in range(0, rows.shape[1], step):
            part = torch.from_numpy(rows[:, first : first + step]).to(patients.labels.device)
            labels = patients.labels[part]
            real = torch.ones_like(labels, dtype=patients.features.dtype)
            more, (loss, outputs) = self._each(
                parameters, buffers, patients.features[part], labels, real
            )
            gradients = {n: gradients[n] + more[n] for n in more} if gradients else more
            losses = losses + loss.double().sum()
            hits = hits + (predictions(outputs) == labels).double().sum()
        return gradients, losses, hits


def patient_gradient(
    module: nn.Module, loss: Loss
) -> Callable[..., tuple[dict[str, Tensor], tuple[Tensor, Tensor]]]:
    """Return a function of (parameters, buffers, features, labels, weights) of one patient.

    It returns the gradient of the patient's summed loss, the summed loss and the outputs. A weight
    is 1 for an example and 0 for padding. `vmap` over the last three arguments gives all patients
    of a model, once more over all of them all models of a stack.
    """

    def summed_loss(
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        features: Tensor,
        labels: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        outputs = functional_call(module, (dict(parameters), dict(buffers)), (features,))
        total = losses_of(loss, outputs.unsqueeze(0), labels.unsqueeze(0), weights.unsqueeze(0))
        return total.squeeze(0), outputs

    def gradient(*arguments: Any) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
        result, (total, outputs) = grad_and_value(summed_loss, has_aux=True)(*arguments)
        return result, (total, outputs.detach())

    return gradient


def sum_clipped(
    gradients: Mapping[str, Tensor],
    clip: float,
    *,
    models: int = 0,
    present: Tensor | None = None,
) -> tuple[dict[str, Tensor], Tensor]:
    """Clip each patient's gradient and return the sums over the patients, and the norms.

    The patients are the first dimension of every tensor; of a stack of models, with `models = 1`,
    the second. `present` is 0 for rows that only pad a stack.
    """
    # One leading dimension for the numbers of a patient, also for a scalar parameter.
    flat = {
        name: gradient.flatten(models + 1) if gradient.ndim > models + 1 else gradient.unsqueeze(-1)
        for name, gradient in gradients.items()
    }
    squares = [torch.linalg.vector_norm(g, dim=-1, dtype=torch.float64) ** 2 for g in flat.values()]
    norms = torch.stack(squares).sum(0).sqrt()
    finite = torch.isfinite(norms)
    factors = (clip * _MARGIN / norms.clamp_min(1e-300)).clamp_max(1.0)
    factors = torch.where(finite, factors, torch.zeros_like(factors))
    if present is not None:
        factors = factors * present
    if not bool(finite.all()):  # zero times infinity would not be zero
        flat = {
            n: torch.where(finite.unsqueeze(-1), g, torch.zeros_like(g)) for n, g in flat.items()
        }
    sums = {
        name: (factors.to(g.dtype).unsqueeze(-2) @ g)
        .squeeze(-2)
        .reshape(*g.shape[:models], *gradients[name].shape[models + 1 :])
        for name, g in flat.items()
    }
    return sums, norms


def refuse_mixed_patients(module: nn.Module, model: str) -> None:
    """Raise a PrivacyError if a layer mixes patients, so that no patient's part can be clipped."""
    for layer in module.modules():
        norm = isinstance(layer, nn.modules.batchnorm._NormBase)
        if norm and (
            layer.track_running_stats or isinstance(layer, nn.modules.batchnorm._BatchNorm)
        ):
            raise PrivacyError(
                f"model: {model} has {type(layer).__name__}, which mixes patients, so that noise "
                'can\'t protect them: set model-options = {"norm": "group"} for mri-cnn, '
                "resnet-small and resnet18, or choose a model without it"
            )


def _passes(
    patients: Patients, at_once: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield patients with equally many examples, at most `at_once`: their numbers and rows."""
    counts = np.array([len(rows) for rows in patients.rows], dtype=np.int64)
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        for first in range(0, len(members), at_once):
            some = members[first : first + at_once]
            yield some, np.stack([patients.rows[i] for i in some])
