"""What leaves a hospital under differential privacy, computed from what must not leave.

Unit `patient`: every round's gradient is a noised sum of clipped gradients (`private_step`), and
with cancelled noise the average replaces the noise of its rounds by less (`released_average`).
Unit `hospital`: the update of a leg is clipped and noised (`released_update`).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from learning import optimizers
from learning.optimizers import OptimizerSpec
from learning.settings import TrainingSettings

from .gradients import PatientGradients, Patients
from .noise import NoiseStream, Tensors, noised


@dataclass(frozen=True)
class PrivateStep:
    """The outcome of one private round.

    `injected` is the noise in the new parameters: they are `injected` plus what the step would have
    given without noise. Cancelled noise subtracts it again. Loss and accuracy are computed from
    patients and must not leave.
    """

    loss: float
    accuracy: float
    injected: Tensors


def private_step(
    gradients: PatientGradients,
    spec: OptimizerSpec,
    round_: int,
    patients: Patients,
    state: optimizers.State,
    *,
    noise: NoiseStream | None,
    batch: NoiseStream | None = None,
) -> PrivateStep:
    """Update the network and the optimiser's state in place by one private round.

    `noise` is None in rounds that get none: the last of an aggregation leg with cancelled noise,
    whose model leaves only through `released_average`. `batch` draws a Poisson batch and is needed
    where `batch-size` asks for one; it must be secret.
    """
    network = gradients.network
    settings = network.settings
    if (rate := sampling_rate(settings)) < 1:
        if batch is None:
            raise ValueError("a Poisson batch needs a secret stream")
        patients = patients.take((batch.uniform(len(patients)) <= rate).numpy())
    clipped = gradients.clipped_sum(patients, settings.clip_norm)
    drawn = None if noise is None else noise.normal_like(network.parameters)
    gradient, injected = private_gradient(clipped.gradients, settings, drawn)
    learning_rate = settings.learning_rate_at(round_)
    optimizers.step(spec, network.parameters, gradient, state, learning_rate)
    injected = {name: value.mul_(-learning_rate) for name, value in injected.items()}
    return PrivateStep(float(clipped.loss), float(clipped.accuracy), injected)


def private_gradient(
    clipped: Mapping[str, Tensor],
    settings: TrainingSettings,
    noise: Mapping[str, Tensor] | None,
) -> tuple[Tensors, Tensors]:
    """Return the gradient for the optimiser, and the noise in it (float64; empty without noise).

    Works on one model's sum of clipped gradients, or on a stack of such sums.
    """
    size = divisor(settings)
    deviation = settings.noise_multiplier * settings.clip_norm
    if noise is None or deviation == 0:
        return {name: value / size for name, value in clipped.items()}, {}
    released = noised(clipped, deviation, noise)
    # With its rounding: what is left after cancelling is exactly the sum without noise.
    injected = {name: (released[name] - value) / size for name, value in clipped.items()}
    gradient = {name: (released[name] / size).to(value.dtype) for name, value in clipped.items()}
    return gradient, injected


def released_average(
    parameters: Mapping[str, Tensor],
    carried: Mapping[str, Tensor],
    deviation: float,
    noise: Mapping[str, Tensor] | None,
) -> Tensors:
    """Return the parameters a hospital contributes to a secure average.

    `carried` is the sum of what `private_step` injected since the last average that this hospital
    was part of, `deviation` the fresh noise's (`member_deviation`).
    """
    clean = {
        name: value.double() - carried[name] if name in carried else value.double()
        for name, value in parameters.items()
    }
    if noise is not None:
        clean = noised(clean, deviation, noise)
    return {name: clean[name].to(value.dtype) for name, value in parameters.items()}


def released_update(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    clip: float,
    deviation: float,
    noise: Mapping[str, Tensor] | None,
) -> Tensors:
    """Return the parameters a hospital releases after a leg, under unit `hospital`.

    The update is clipped to `clip`. Any two data sets are neighbours, so that two updates can
    differ by twice that.
    """
    update = clip_update(before, after, clip)
    if noise is not None:
        update = noised(update, deviation, noise)
    return {name: (old.double() + update[name]).to(old.dtype) for name, old in before.items()}


def clip_update(before: Mapping[str, Tensor], after: Mapping[str, Tensor], clip: float) -> Tensors:
    """Return after − before, scaled down to norm `clip`; zero if it is not finite."""
    update = {name: after[name].detach().double() - old.detach() for name, old in before.items()}
    norm = math.sqrt(sum(float(value.square().sum()) for value in update.values()))
    if not math.isfinite(norm):
        return {name: torch.zeros_like(value) for name, value in update.items()}
    factor = min(1.0, clip / norm) if norm else 1.0
    return {name: value * factor for name, value in update.items()}


def average_sensitivity(settings: TrainingSettings, rounds: Iterable[int]) -> float:
    """Return by how much one patient can change the sum of a secure average.

    `rounds` are all rounds since the last average that the hospital was part of.
    """
    rates = sum(settings.learning_rate_at(round_) for round_ in rounds)
    return rates * settings.clip_norm / divisor(settings)


def member_deviation(multiplier: float, sensitivity: float, honest: int) -> float:
    """Return the deviation of each member's noise, of which `honest` members' suffice together.

    `honest` is t − c: the fewest members in a secure average, less those who may collude.
    """
    if honest < 1:
        raise ValueError(f"honest must be at least 1, got {honest}")
    return multiplier * sensitivity / math.sqrt(honest)


def sampling_rate(settings: TrainingSettings) -> float:
    """Return a patient's probability to be in a round's batch."""
    if not settings.batch_size:
        return 1.0
    return min(1.0, settings.batch_size / settings.nominal_patients)


def divisor(settings: TrainingSettings) -> float:
    """Return what sums of gradients are divided by: a number that no patient changes."""
    return sampling_rate(settings) * settings.nominal_patients
