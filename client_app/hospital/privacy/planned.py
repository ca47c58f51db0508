"""What an experiment would cost a patient, and settings that noise can't be combined with."""

from functools import lru_cache

from client_app.hospital.refusal import Refused
from learning.privacy import Release, epsilon
from learning.privacy.plan import PlannedLeg, is_cancelled, planned_releases
from learning.settings import TrainingSettings
from protocol.descriptor import Descriptor
from protocol.messages import RefusalCode
from protocol.schedule import Ending


def experiment_epsilon(descriptor: Descriptor, settings: TrainingSettings, delta: float) -> float:
    """Return ε of an experiment without a missed average; infinity without noise."""
    legs = (
        PlannedLeg(leg.local_rounds, leg.ending is Ending.AGGREGATION)
        for leg in descriptor.schedule().legs
    )
    return _epsilon(planned_releases(settings, legs), delta)


def check_noise(descriptor: Descriptor, settings: TrainingSettings) -> None:
    """Refuse settings of the method with which noise would not hide what it promises to hide."""
    is_private = settings.privacy_unit != "none"
    is_averaged = descriptor.averaging == "secure" and descriptor.aggregate == "verified"
    is_pulled = settings.privacy_unit == "patient" and settings.proximal_mu
    for is_possible, problem in (
        (not is_pulled, "privacy-unit = patient can't be combined with FedProx's term"),
        (
            not is_cancelled(settings) or settings.privacy_unit == "patient",
            "average-noise-multiplier needs privacy-unit = patient",
        ),
        (not (is_private and descriptor.weighted), "weights by examples would tell their number"),
        (
            not is_cancelled(settings) or (is_averaged and descriptor.schedule_commitment is None),
            "average-noise-multiplier needs secure averaging, the members' mean as the aggregate, "
            "and a periodic schedule",
        ),
    ):
        if not is_possible:
            raise Refused(RefusalCode.DESCRIPTOR_REFUSED, problem)


@lru_cache(maxsize=16)
def _epsilon(releases: tuple[Release, ...], delta: float) -> float:
    return epsilon(releases, delta)
