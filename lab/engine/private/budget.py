"""The ε that a hospital of a simulated study spends, from the study's settings."""

from learning.privacy import PrivacyError, Release, epsilon
from learning.privacy.plan import PlannedLeg, planned_releases
from protocol.randomness import derive_seed
from protocol.schedule import Ending
from server_app.config.noise_target import with_noise
from server_app.config.run_config import Settings


def run_epsilon(settings: Settings) -> float | None:
    """Return the ε of one patient, or of one hospital, over a whole run; None without a unit.

    It is the ε at the δ of the setting `target-delta`.
    It holds against the coordinator and as many members as may collude in secure averaging; without
    noise shared in averages, against everybody.
    """
    if settings.training.privacy_unit == "none":
        return None
    return epsilon(releases_of(with_computed_noise(settings)), settings.algorithm.target_delta)


def with_computed_noise(settings: Settings) -> Settings:
    """Return the settings with the noise that `target-epsilon` asks for, if it is set."""
    if not settings.algorithm.target_epsilon:
        return settings
    training = settings.training
    if training.privacy_unit == "hospital" and training.average_noise_multiplier:
        raise PrivacyError(
            "target-epsilon can't compute noise that hospitals share (privacy-unit = hospital): "
            "set average-noise-multiplier and leave target-epsilon at 0"
        )
    return with_noise(settings)


def releases_of(settings: Settings) -> tuple[Release, ...]:
    """Return what leaves a hospital that takes part in every leg."""
    training = settings.training
    legs = settings.algorithm.to_schedule(derive_seed(settings.algorithm.seed, "route")).legs
    if training.privacy_unit == "hospital" and training.average_noise_multiplier:
        # Any two data sets are neighbours: two updates of norm S differ by up to 2S.
        return (Release(training.average_noise_multiplier / 2, count=len(legs)),)
    planned = (PlannedLeg(leg.local_rounds, leg.ending is Ending.AGGREGATION) for leg in legs)
    return planned_releases(training, planned)
