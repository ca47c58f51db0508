"""The final model of an experiment, kept at the hospital before its keys are destroyed."""

from client_app.final_models.model_folder import FinalModels
from protocol.messages import Carries, TrainLeg
from protocol.model_bytes import ModelState

from .agreement.agreed_experiment import AgreedExperiment
from .leg_order import follows_aggregation

_FIRST = "first-model"


def remember_first_model(request: TrainLeg, experiment: AgreedExperiment) -> None:
    """Store the first model if the coordinator gives one: training alone begins with it, too.

    It is checked when the leg is served; what is refused is not stored.
    """
    is_given = experiment.descriptor.first_model_is_given and request.carries is Carries.AGGREGATE
    if is_given and not follows_aggregation(request.leg, experiment):
        experiment.store.put(_FIRST, request.payload)


def keep_final_model(models: FinalModels, experiment: AgreedExperiment, model: ModelState) -> None:
    """Write the final model into the hospital's folder."""
    first = experiment.store.get(_FIRST)
    given = None if first is None else experiment.training.read(first)
    models.keep(experiment.descriptor, model, given)
