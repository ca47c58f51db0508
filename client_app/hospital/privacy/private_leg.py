"""One leg with noise: train, and return the model that may leave."""

import logging

from client_app.hospital.aggregate import vector_form
from client_app.hospital.agreement.agreed_experiment import AgreedExperiment
from learning.privacy import NoiseSource, average_sensitivity, member_deviation
from learning.privacy.plan import is_cancelled
from protocol.messages import TrainLeg
from protocol.model_bytes import Arrays, ModelState
from protocol.secure_sum.secure_leg import most_colluding, threshold

from .carried_noise import CarriedNoise
from .spending import rounds_since_aggregation

logger = logging.getLogger(__name__)


def private_leg(
    request: TrainLeg,
    experiment: AgreedExperiment,
    begun: ModelState,
    noise: NoiseSource,
    anchor: Arrays | None,
    *,
    is_trained: bool,
) -> ModelState:
    """Train a model and return it as it may leave.

    A hospital whose budget is spent (not `is_trained`) hands the model on as it came. In an average
    with cancelled noise it still adds its part of the fresh noise: the other members count on it.
    """
    training = experiment.training
    rounds = range(request.first_round, request.first_round + request.local_rounds)
    is_average = request.recipient is None and is_cancelled(training.settings)
    if not is_trained:
        return _average(request, experiment, begun, {}, noise) if is_average else begun
    if training.settings.privacy_unit == "hospital":
        return training.train_hospital(begun, rounds, noise, anchor)
    trained, injected = training.train_patients(begun, rounds, noise, last_is_quiet=is_average)
    carried = CarriedNoise(experiment.store)
    if is_average:
        if injected:
            carried.add(injected, tuple(rounds[:-1]))
        return _average(request, experiment, trained, carried.noise, noise)
    if not trained.is_finite(wire=training.settings.wire_dtype):
        logger.warning("leg %d: training diverged; the model goes on untrained", request.leg)
        return begun
    if is_cancelled(training.settings):
        carried.add(injected, tuple(rounds))
    return trained


def _average(
    request: TrainLeg,
    experiment: AgreedExperiment,
    trained: ModelState,
    carried: Arrays,
    noise: NoiseSource,
) -> ModelState:
    """Return what this hospital adds to an average: without its earlier noise, with fresh noise.

    The noise of t − c members is enough together: whoever else colludes or is missing.
    """
    members = len(experiment.store.announcements)
    rounds = rounds_since_aggregation(experiment.legs, request.leg)
    settings = experiment.training.settings
    deviation = member_deviation(
        settings.average_noise_multiplier,
        average_sensitivity(settings, rounds),
        threshold(members) - most_colluding(members),
    )
    # Clamped before the noise: a value out of range would be refused, which shows in the sum.
    largest = vector_form(experiment).largest / 2
    return experiment.training.release_average(
        trained, carried, deviation, noise, largest=largest, round_=rounds[-1]
    )
