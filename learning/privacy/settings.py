"""Settings of differential privacy: part of the training settings, and so of the descriptor."""

from typing import Literal

from operation.config import SettingsGroup, setting


class PrivacySettings(SettingsGroup):
    """What is clipped, how much noise is added, and whose contribution it hides."""

    privacy_unit: Literal["none", "patient", "hospital"] = setting(
        "none",
        "whose contribution the noise hides",
        advice="`patient`: in each round every patient's gradient is clipped, and their sum gets "
        "noise. `hospital`: the update of a leg is clipped and gets noise, as in the paper; useful "
        "for tiny models only. See [privacy.md](privacy.md).",
    )
    clip_norm: float = setting(
        1.0,
        "largest norm of a patient's gradient, or of a leg's update (hospital)",
        gt=0,
    )
    noise_multiplier: float = setting(
        0.0,
        "standard deviation of the noise, in multiples of clip-norm",
        ge=0,
        advice="0 with `target-epsilon`: computed before the experiment begins. 0 without: the "
        "gradients are clipped, but nothing is hidden, and hospitals with `max-epsilon` refuse.",
    )
    target_epsilon: float = setting(
        0.0,
        "ε of the experiment, from which the noise is computed; 0: use noise-multiplier",
        ge=0,
    )
    delta: float = setting(
        1e-5,
        "δ of target-epsilon",
        gt=0,
        lt=1,
        advice="Hospitals account with the `delta` of their own policy.",
    )
    nominal_size: int = setting(
        0,
        "patients by which the sum of their gradients is divided (patient)",
        ge=0,
        advice="The same at all hospitals, because the true number is confidential: about the "
        "number of patients of a usual hospital. Batches of `batch-size` are Poisson samples: each "
        "patient is drawn with the probability `batch-size` / `nominal-size`.",
    )
    cancelled_noise: bool = setting(
        False,
        "subtract the noise of hand-overs again under the masks of a secure average",
        advice='Needs `privacy-unit = "patient"`, secure averaging with `aggregator = "fedavg"` '
        "and equal weights, full batches, and plain SGD without weight decay.",
    )
    average_multiplier: float = setting(
        0.0,
        "multiplier of the noise in a secure average (cancelled-noise)",
        ge=0,
        advice="In multiples of what one patient can change in all rounds since the last average. "
        "0 with `target-epsilon`: computed.",
    )
