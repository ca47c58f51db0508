"""A backend that trains with differential privacy, by the hospital's own functions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.engine.routes import Positions, Work
from lab.engine.stack import Stack
from lab.engine.training_interface import Anchors, LegMetrics, Training
from learning import optimizers
from learning.privacy import (
    NoiseSource,
    average_sensitivity,
    member_deviation,
    private_gradient,
    released_average,
    released_update,
    sampling_rate,
)
from learning.privacy.noise import NoiseStream, Tensors, normal_rows
from learning.settings import TrainingSettings
from learning.trainer import optimizer_spec

from .stacked_gradients import StackedGradients


@dataclass(frozen=True)
class Noise:
    """Where a simulated study's noise comes from.

    `honest` is t − c: of so many members the noise in a secure average must suffice.
    """

    source: NoiseSource
    honest: int

    def streams(self, hospitals: Positions, purpose: str, round_: int) -> list[NoiseStream]:
        """Return the stream of each hospital for one release."""
        return [
            self.source.source("hospital", hospital).stream(purpose, round_)
            for hospital in hospitals.tolist()
        ]

    def draw(self, like: Tensors, hospitals: Positions, purpose: str, round_: int) -> Tensors:
        """Return each hospital's standard normal numbers, in the shapes of a stack."""
        numbers = [tensor[0].numel() for tensor in like.values()]
        rows = normal_rows(self.streams(hospitals, purpose, round_), sum(numbers))
        parts = torch.split(rows, numbers, dim=1)
        return {
            name: part.reshape(tensor.shape)
            for part, (name, tensor) in zip(parts, like.items(), strict=True)
        }


class StackedPatientTraining:
    """Unit `patient`: a noised sum of clipped gradients in every round."""

    def __init__(
        self, settings: TrainingSettings, stack: Stack, gradients: StackedGradients, noise: Noise
    ) -> None:
        self._settings, self._stack = settings, stack
        self._gradients, self._noise = gradients, noise
        self._spec = optimizer_spec(settings)
        self._cancels = settings.average_noise_multiplier > 0
        # Since the last average: what each hospital has injected, and its first round.
        self._carried = (
            {name: torch.zeros_like(t, dtype=torch.float64) for name, t in stack.parameters.items()}
            if self._cancels
            else {}
        )
        self._first = torch.zeros(len(next(iter(stack.parameters.values()))), dtype=torch.int64)
        self.state = {f"carried/{name}": tensor for name, tensor in self._carried.items()}
        self.state |= {"first": self._first}

    def train(self, work: Work, anchors: Anchors) -> LegMetrics:
        slots = torch.from_numpy(work.slots)
        models = self._stack.take(slots)
        losses, accuracies = torch.zeros(len(work)), torch.zeros(len(work))
        for round_ in range(int(work.first_rounds.min()), work.last_round + 1):
            active = np.flatnonzero(work.first_rounds <= round_)
            rows = torch.from_numpy(active)
            part = models if len(active) == len(work) else models.take(rows)
            loss, accuracy = self._step(part, work.hospitals[active], round_, work)
            losses[rows] += loss.cpu()
            accuracies[rows] += accuracy.cpu()
            if part is not models:
                models.put(rows, part)
        if work.aggregates and self._cancels:
            self._average(models, work)
        self._stack.put(slots, models)
        rounds = torch.from_numpy(work.last_round + 1 - work.first_rounds)
        return LegMetrics(losses / rounds, accuracies / rounds)

    def _step(
        self, models: Stack, hospitals: Positions, round_: int, work: Work
    ) -> tuple[Tensor, Tensor]:
        settings, parameters = self._settings, models.parameters
        drawn = None
        if (rate := sampling_rate(settings)) < 1:
            streams = self._noise.streams(hospitals, "batch", round_)
            counts = self._gradients.patients[hospitals].tolist()
            drawn = [
                (stream.uniform(count) <= rate).numpy()
                for stream, count in zip(streams, counts, strict=True)
            ]
        sums, losses, accuracies = self._gradients.sums(
            parameters, hospitals, settings.clip_norm, drawn
        )
        # A model that leaves only through an average gets the average's noise instead.
        covered = self._cancels and work.aggregates and round_ == work.last_round
        noisy = settings.noise_multiplier > 0 and not covered
        noise = self._noise.draw(parameters, hospitals, "round", round_) if noisy else None
        gradient, injected = private_gradient(sums, settings, noise)
        learning_rate = settings.learning_rate_at(round_)
        optimizers.step(self._spec, parameters, gradient, models.optimizer, learning_rate)
        if self._cancels:
            rows = torch.from_numpy(hospitals)
            for name, value in injected.items():
                self._carried[name][rows] -= learning_rate * value
        return losses.detach(), accuracies.detach()

    def _average(self, models: Stack, work: Work) -> None:
        """Replace the noise of the rounds since the last average by the average's own."""
        hospitals = torch.from_numpy(work.hospitals)
        carried = {name: tensor[hospitals] for name, tensor in self._carried.items()}
        noise = self._noise.draw(models.parameters, work.hospitals, "average", work.last_round)
        first = self._first[hospitals].numpy()
        for start in np.unique(first):
            rows = torch.from_numpy(np.flatnonzero(first == start))
            sensitivity = average_sensitivity(
                self._settings, range(int(start), work.last_round + 1)
            )
            deviation = member_deviation(
                self._settings.average_noise_multiplier, sensitivity, self._noise.honest
            )
            chosen = (
                {name: tensor[rows] for name, tensor in each.items()}
                for each in (models.parameters, carried, noise)
            )
            parameters, cancelled, fresh = chosen
            for name, value in released_average(parameters, cancelled, deviation, fresh).items():
                models.parameters[name][rows] = value
        for tensor in self._carried.values():
            tensor[hospitals] = 0
        self._first[hospitals] = work.last_round + 1


class HospitalTraining:
    """Unit `hospital`: ordinary training, then the update of the leg is clipped and noised."""

    def __init__(
        self, settings: TrainingSettings, stack: Stack, training: Training, noise: Noise
    ) -> None:
        self._settings, self._stack = settings, stack
        self._training, self._noise = training, noise
        self.state: Tensors = {}

    def train(self, work: Work, anchors: Anchors) -> LegMetrics:
        settings, slots = self._settings, torch.from_numpy(work.slots)
        before = {name: tensor[slots].clone() for name, tensor in self._stack.parameters.items()}
        metrics = self._training.train(work, anchors)
        multiplier = settings.noise_multiplier
        deviation = multiplier * settings.clip_norm
        if settings.average_noise_multiplier:
            deviation = member_deviation(
                settings.average_noise_multiplier, settings.clip_norm, self._noise.honest
            )
        noise = (
            self._noise.draw(before, work.hospitals, "update", work.last_round)
            if deviation
            else None
        )
        for number, slot in enumerate(work.slots.tolist()):
            one = _at(number)
            released = released_update(
                one(before),
                _at(slot)(self._stack.parameters),
                settings.clip_norm,
                deviation,
                None if noise is None else one(noise),
            )
            for name, value in released.items():
                self._stack.parameters[name][slot] = value
        return metrics


def _at(number: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensor[number] for name, tensor in tensors.items()}
