"""Prepare training with differential privacy for a run's settings."""

import torch

from lab.engine.backends.backend import PreparedBackend, TrainingInputs, prepare
from lab.engine.stack import Stack
from lab.engine.training_interface import Backend
from learning.privacy import NoiseSource, PrivacyError, check_settings, refuse_mixed_patients
from learning.trainer import Network, optimizer_spec
from protocol.randomness import derive_seed
from protocol.secure_sum.secure_leg import most_colluding, threshold
from server_app.config.run_config import Settings

from .private_training import HospitalTraining, Noise, StackedPatientTraining
from .stacked_gradients import stacked_gradients


def prepare_private(
    backend: Backend, inputs: TrainingInputs, settings: Settings
) -> PreparedBackend:
    """Prepare the mechanism of `privacy-unit`; its noise follows from the run's seed."""
    training = inputs.training
    check_settings(training)
    _check_averages(settings)
    noise = simulated_noise(settings)
    network = Network(training, inputs.task, seed=0, device=inputs.device.type)
    refuse_mixed_patients(network.module, training.model)
    if training.privacy_unit == "hospital":
        prepared = prepare(backend, inputs)
        private = HospitalTraining(training, prepared.stack, prepared.training, noise)
        return PreparedBackend(prepared.backend, prepared.stack, private)
    stack = Stack.of(
        inputs.first_model,
        len(inputs.examples),
        optimizer_spec(training),
        device=inputs.device,
        memory_format=torch.contiguous_format,
    )
    batched = backend in ("auto", "batched")
    gradients = stacked_gradients(network, inputs.examples, batched=batched)
    used: Backend = "batched" if gradients.batched else "loop"
    return PreparedBackend(used, stack, StackedPatientTraining(training, stack, gradients, noise))


def simulated_noise(settings: Settings) -> Noise:
    """Return the noise of a simulated study: a secret that, as all others, follows from its seed.

    A real hospital's comes from its operating system.
    """
    members = settings.algorithm.hospitals
    return Noise(
        NoiseSource(derive_seed(settings.algorithm.seed, "noise")), honest_members(members)
    )


def honest_members(members: int) -> int:
    """Return t − c: the members whose noise is in every secure average and known to nobody else."""
    return threshold(members) - most_colluding(members)


def _check_averages(settings: Settings) -> None:
    algorithm, training = settings.algorithm, settings.training
    if not training.average_noise_multiplier:
        return
    needed = {
        "aggregator": (algorithm.aggregator, "fedavg"),
        "weighting": (algorithm.weighting, "equal"),
        "fraction": (algorithm.fraction, 1),
    }
    for key, (value, wanted) in needed.items():
        if value != wanted:
            raise PrivacyError(
                f"average-noise-multiplier needs {key} = {wanted}, got {value}: the noise of all "
                "members must be in every average, equally"
            )
    if training.privacy_unit == "hospital" and algorithm.daisy_period:
        raise PrivacyError(
            "privacy-unit = hospital with average-noise-multiplier needs daisy-period = 0: "
            "hand-overs would leave with too little noise"
        )
