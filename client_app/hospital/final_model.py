"""The end of an experiment: its final model is kept here before its keys are destroyed."""

from client_app.final_models.model_folder import FinalModels
from protocol.messages import Carries, Close, Closed, TrainLeg
from protocol.model_bytes import ModelState

from .aggregate import read_final
from .agreement.agreed_experiment import AgreedExperiment
from .agreement.policy import Policy
from .leg_order import check_opening, follows_aggregation

_FIRST = "first-model"


def remember_first_model(request: TrainLeg, experiment: AgreedExperiment) -> None:
    """Store the first model if the coordinator gives one: training alone begins with it, too.

    It is checked when the leg is served; what is refused is not stored.
    """
    is_given = experiment.descriptor.first_model_is_given and request.carries is Carries.AGGREGATE
    if is_given and not follows_aggregation(request.leg, experiment):
        experiment.store.put(_FIRST, request.payload)


def close(
    request: Close, experiment: AgreedExperiment, policy: Policy, final_models: FinalModels | None
) -> Closed:
    """Check and keep the final model, and destroy the experiment's keys and state."""
    check_opening(request, experiment)
    metrics = None
    if experiment.descriptor.averaging == "secure":
        # Its figures would be one hospital's own; they have left in the closing sum, if at all.
        model = read_final(request.payload, experiment)
    else:
        model = experiment.training.read(request.payload)
        is_private = experiment.training.settings.privacy_unit != "none"
        if "held-out" in policy.metrics and not is_private:
            metrics = experiment.training.evaluate(model, policy.minimum_held_out)
    if final_models is not None:
        keep_final_model(final_models, experiment, model)
    experiment.store.destroy()
    return Closed(
        held_out_loss=policy.rounded("held-out", metrics.loss if metrics else None),
        held_out_accuracy=policy.rounded("held-out", metrics.accuracy if metrics else None),
    )


def keep_final_model(models: FinalModels, experiment: AgreedExperiment, model: ModelState) -> None:
    """Write the final model into the hospital's folder."""
    first = experiment.store.get(_FIRST)
    given = None if first is None else experiment.training.read(first)
    models.keep(experiment.descriptor, model, given)
