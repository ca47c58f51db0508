"""Differential privacy for local training: clipping, noise and accounting.

Pure functions on tensors, shared by the hospital and the lab: what is released is computed by the
same lines in both. Who keeps the ledger, and when a release leaves, is the hospital's concern.
"""

from .accountant import Release, epsilon, geyer_epsilon, noise_for_epsilon, smallest_noise
from .conditions import check_settings
from .gradients import PatientGradients, Patients, PrivacyError, refuse_mixed_patients
from .noise import NoiseSource, NoiseStream, noised
from .release import (
    PrivateStep,
    average_sensitivity,
    clip_update,
    member_deviation,
    private_gradient,
    private_step,
    released_average,
    released_update,
    sampling_rate,
)

__all__ = [
    "NoiseSource",
    "NoiseStream",
    "PatientGradients",
    "Patients",
    "PrivacyError",
    "PrivateStep",
    "Release",
    "average_sensitivity",
    "check_settings",
    "clip_update",
    "epsilon",
    "geyer_epsilon",
    "member_deviation",
    "noise_for_epsilon",
    "noised",
    "private_gradient",
    "private_step",
    "refuse_mixed_patients",
    "released_average",
    "released_update",
    "sampling_rate",
    "smallest_noise",
]
