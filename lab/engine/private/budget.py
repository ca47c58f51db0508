"""The ε that a hospital of a simulated study spends, from the study's settings."""

from learning.privacy import Release, epsilon, sampling_rate
from protocol.randomness import derive_seed
from protocol.schedule import Ending
from server_app.config.run_config import Settings

DELTA = 1e-5


def run_epsilon(settings: Settings, delta: float = DELTA) -> float | None:
    """Return the ε of one patient, or of one hospital, over a whole run; None without a unit.

    It holds against the coordinator and as many members as may collude in secure averaging; without
    noise shared in averages, against everybody.
    """
    if settings.training.privacy_unit == "none":
        return None
    return epsilon(releases_of(settings), delta)


def releases_of(settings: Settings) -> list[Release]:
    """Return what leaves a hospital that takes part in every leg."""
    training = settings.training
    legs = settings.algorithm.to_schedule(derive_seed(settings.algorithm.seed, "route")).legs
    averages = sum(leg.ending is Ending.AGGREGATION for leg in legs)
    shared = training.average_noise_multiplier
    if training.privacy_unit == "hospital":
        # Any two data sets are neighbours: two updates of norm S differ by up to 2S.
        return [Release((shared or training.noise_multiplier) / 2, count=len(legs))]
    rounds = settings.algorithm.rounds
    if not shared:
        return [Release(training.noise_multiplier, sampling_rate(training), rounds)]
    # Every round but the last before an average is charged as if it were handed over.
    return [
        Release(training.noise_multiplier, count=rounds - averages),
        Release(shared, count=averages),
    ]
