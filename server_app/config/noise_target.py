"""Computes the noise of an experiment from `target-epsilon`, and ε from its noise."""

import math

from learning.privacy.plan import PlannedLeg, planned_epsilon, with_noise_for
from operation.config import Scalar
from protocol.randomness import SEED_BYTES
from protocol.schedule import Ending

from .run_config import Settings

_POINTS = 25  # of a curve: with Poisson batches each takes a tenth of a second or more


def noise_for_target(settings: Settings) -> dict[str, Scalar]:
    """Return the settings that the target stands for, by key; none without a target."""
    algorithm = settings.algorithm
    if not algorithm.target_epsilon:
        return {}
    training = with_noise_for(
        settings.training, _legs(settings), algorithm.target_epsilon, algorithm.target_delta
    )
    return {
        "target-epsilon": 0.0,
        "noise-multiplier": training.noise_multiplier,
        "average-noise-multiplier": training.average_noise_multiplier,
    }


def with_noise(settings: Settings) -> Settings:
    """Return the settings with the noise that their target stands for."""
    computed = settings.as_config() | noise_for_target(settings)
    return Settings.from_run_config(computed, source="target-epsilon")


def epsilon_of(settings: Settings) -> float | None:
    """Return ε of a hospital that takes part in every leg, at `target-delta`; None without a unit.

    It takes seconds.
    """
    if settings.training.privacy_unit == "none":
        return None
    if settings.algorithm.target_epsilon:
        return settings.algorithm.target_epsilon
    return planned_epsilon(settings.training, _legs(settings), settings.algorithm.target_delta)


def epsilon_at(settings: Settings, delta: float) -> float:
    """Return ε of a hospital that takes part in every leg at its own δ; infinity without noise."""
    if settings.training.privacy_unit == "none":
        return math.inf
    if settings.algorithm.target_epsilon and settings.algorithm.target_delta == delta:
        return settings.algorithm.target_epsilon
    settings = with_noise(settings)
    return planned_epsilon(settings.training, _legs(settings), delta)


def scheduled_epsilon(settings: Settings, route_seed: bytes) -> dict[int, float]:
    """Return ε after some of the legs, the last included, for a hospital that trains in all.

    Computed from the settings alone. A hospital that missed an average pays more for the next; one
    that missed a leg pays less. Empty without a privacy unit; legs without an ε are left out.
    """
    if settings.training.privacy_unit == "none":
        return {}
    legs, delta = _legs(settings, route_seed), settings.algorithm.target_delta
    last = len(legs)
    numbers = sorted({math.ceil(last * point / _POINTS) for point in range(1, _POINTS + 1)})
    spent = {n: planned_epsilon(settings.training, legs[:n], delta) for n in numbers}
    return {number: value for number, value in spent.items() if math.isfinite(value)}


def _legs(settings: Settings, route_seed: bytes = bytes(SEED_BYTES)) -> list[PlannedLeg]:
    # Where a random schedule aggregates makes no difference: every leg or round is a release.
    legs = settings.algorithm.to_schedule(route_seed).legs
    return [PlannedLeg(leg.local_rounds, leg.ending is Ending.AGGREGATION) for leg in legs]
