"""Computes the noise of an experiment from `target-epsilon`, and ε from its noise."""

from learning.privacy.plan import PlannedLeg, planned_epsilon, with_noise_for
from operation.config import Scalar
from protocol.randomness import SEED_BYTES
from protocol.schedule import Ending

from .run_config import Settings


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


def _legs(settings: Settings) -> list[PlannedLeg]:
    # Where a random schedule aggregates makes no difference: every leg or round is a release.
    legs = settings.algorithm.to_schedule(bytes(SEED_BYTES)).legs
    return [PlannedLeg(leg.local_rounds, leg.ending is Ending.AGGREGATION) for leg in legs]
