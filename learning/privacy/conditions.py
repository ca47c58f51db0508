"""Which training settings a privacy mechanism is sound with."""

from learning.settings import TrainingSettings

from .gradients import PrivacyError


def check_settings(training: TrainingSettings) -> None:
    """Raise a PrivacyError for settings that contradict the mechanism, with what to change."""
    if training.privacy_unit == "none":
        if training.noise_multiplier or training.average_noise_multiplier:
            raise PrivacyError(
                "noise-multiplier and average-noise-multiplier have no effect with "
                "privacy-unit = none: set privacy-unit = patient, or both to 0"
            )
        return
    if training.privacy_unit == "patient":
        if not training.nominal_patients:
            raise PrivacyError(
                "privacy-unit = patient needs nominal-patients, what sums of gradients are divided "
                "by: set it to about the number of patients of a hospital"
            )
        if training.batch_size > training.nominal_patients:
            raise PrivacyError(
                f"batch-size = {training.batch_size} is more than nominal-patients = "
                f"{training.nominal_patients}: set it to 0 for all patients in every round"
            )
        if training.proximal_mu:
            raise PrivacyError(
                "privacy-unit = patient can't be combined with FedProx's term: choose another "
                "aggregator than fedprox"
            )
    elif training.optimizer != "sgd" or training.momentum:
        raise PrivacyError(
            "privacy-unit = hospital needs optimizer = sgd and momentum = 0: an optimiser's state "
            "would leave the hospital without noise"
        )
    if training.average_noise_multiplier:
        _check_cancelled(training)


def _check_cancelled(training: TrainingSettings) -> None:
    """Cancelled noise must leave the model exactly as it would be without it."""
    needed = {
        "optimizer": (training.optimizer, "sgd"),
        "momentum": (training.momentum, 0),
        "weight-decay": (training.weight_decay, 0),
        "proximal-mu": (training.proximal_mu, 0),
        "batch-size": (training.batch_size, 0),
        "wire-dtype": (training.wire_dtype, "same"),
    }
    for key, (value, wanted) in needed.items():
        if value != wanted:
            raise PrivacyError(
                f"average-noise-multiplier needs {key} = {wanted}, got {value}: with another value "
                "the noise of earlier rounds can't be subtracted"
            )
