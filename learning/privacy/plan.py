"""What an experiment releases about a patient, counted from its settings and its legs.

The same count serves the hospital, which charges its ledger leg by leg, and the coordinator, which
computes the noise for a target.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from learning.settings import TrainingSettings

from .accountant import Release, epsilon, smallest_noise

# Of 1/μ², what hand-overs get when the noise of hand-overs and averages is computed for a target:
# they need the larger part, because each of them is seen alone.
_HAND_OVERS = 0.7


@dataclass(frozen=True)
class PlannedLeg:
    """How many rounds a leg has, and whether it ends in an aggregation."""

    rounds: int
    is_aggregation: bool


def is_cancelled(settings: TrainingSettings) -> bool:
    """Return whether secure averages replace the noise of their rounds by less."""
    return settings.average_noise_multiplier > 0


def leg_releases(
    settings: TrainingSettings, leg: PlannedLeg, *, average_scale: float = 1.0
) -> tuple[Release, ...]:
    """Return what a leg releases.

    `average_scale` is the part of its usual noise, in multiples of the sensitivity, that an average
    has for this hospital: less than 1 if it subtracts the noise of more rounds than usual.
    """
    if settings.privacy_unit == "none":
        return (Release(0.0),)
    if settings.privacy_unit == "hospital":
        # Any two data sets are neighbours: two clipped updates differ by up to twice the norm.
        return (Release(settings.noise_multiplier / 2),)
    rate = settings.batch_size / settings.nominal_patients if settings.batch_size else 1.0
    noised = leg.rounds
    releases: tuple[Release, ...] = ()
    if leg.is_aggregation and is_cancelled(settings):
        noised -= 1
        releases = (Release(settings.average_noise_multiplier * average_scale),)
    return (*((Release(settings.noise_multiplier, rate, noised),) if noised else ()), *releases)


def planned_releases(settings: TrainingSettings, legs: Iterable[PlannedLeg]) -> tuple[Release, ...]:
    """Return what an experiment releases if the hospital takes part in every leg."""
    counts: dict[tuple[float, float], int] = {}
    for leg in legs:
        for one in leg_releases(settings, leg):
            kind = (one.multiplier, one.sampling_rate)
            counts[kind] = counts.get(kind, 0) + one.count
    return tuple(Release(*kind, count) for kind, count in counts.items())


def planned_epsilon(settings: TrainingSettings, legs: Iterable[PlannedLeg], delta: float) -> float:
    """Return ε of a whole experiment; infinity without noise."""
    return epsilon(planned_releases(settings, legs), delta)


def with_noise_for(
    settings: TrainingSettings, legs: Iterable[PlannedLeg], target: float, delta: float
) -> TrainingSettings:
    """Return the settings with the least noise that keeps an experiment within ε = `target`.

    Where averages have noise of their own, the budget is divided between them and hand-overs.
    """
    legs = tuple(legs)

    def scaled(scale: float) -> TrainingSettings:
        changes = {"noise_multiplier": scale}
        if is_cancelled(settings):
            averages = sum(leg.is_aggregation for leg in legs)
            noised = sum(leg.rounds for leg in legs) - averages
            ratio = math.sqrt(averages / noised * _HAND_OVERS / (1 - _HAND_OVERS)) if noised else 1
            changes["average_noise_multiplier"] = scale * ratio
        return settings.model_copy(update=changes)

    scale = smallest_noise(lambda s: planned_releases(scaled(s), legs), target, delta)
    return scaled(scale)
