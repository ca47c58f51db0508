"""The closing secure sum at a hospital: figures of the final model on held-out examples, as totals.

They leave under masks, once, and only of the final model that all survivors name in their signed
statements. A hospital that adds none sends zeros, which nobody can tell from figures.
"""

from client_app.state.experiment_store import ExperimentStore
from protocol.messages import EvaluateFinal, Masked, RefusalCode
from protocol.sealing.keys import Identity
from protocol.secure_sum.held_out_totals import HeldOutForm, HeldOutTotals
from protocol.secure_sum.secure_leg import SecureLeg, SecureSumError, most_colluding
from protocol.study.roster import Roster

from .aggregate import last_aggregate, read_final, record_final
from .agreement.agreed_experiment import AgreedExperiment
from .agreement.policy import Policy
from .figures import who_adds_closing_figures
from .refusal import Refused
from .secure_sum import check_cohort, mask_vector


def evaluate_final(
    request: EvaluateFinal,
    experiment: AgreedExperiment,
    identity: Identity,
    policy: Policy,
    pinned: Roster,
) -> Masked:
    """Evaluate the final model, and return totals for a secure sum, or zeros."""
    _check_order(request, experiment)
    model = read_final(request.payload, experiment)
    leg = check_cohort(request, experiment, policy, pinned)
    record_final(request.payload, experiment)
    totals = None
    # What is not sent is not computed: its time would depend on the number of patients.
    if _adds_figures(leg, experiment, policy):
        counts = experiment.training.count_held_out(model)
        loss = policy.rounded("held-out", counts.loss)
        if loss is not None:  # the model is finite, but its losses need not be
            total = loss * sum(counts.examples)
            totals = HeldOutTotals(1, total, counts.examples, counts.correct)
    form = HeldOutForm(experiment.descriptor.classes, members=len(experiment.store.announcements))
    try:
        vector = form.encode(totals)
    except SecureSumError as error:
        raise Refused(RefusalCode.OUT_OF_RANGE, str(error)) from error
    return mask_vector(leg, experiment, identity, vector, last_aggregate(experiment.store))


def _check_order(request: EvaluateFinal, experiment: AgreedExperiment) -> None:
    """Refuse a closing sum in an experiment that has none, or before its last leg."""
    last, descriptor = len(experiment.legs), experiment.descriptor
    if descriptor.averaging != "secure" or request.leg != last + 1:
        raise Refused(RefusalCode.AGAINST_SCHEDULE, f"the closing sum comes after leg {last}")
    # A verified final model proves that the last leg is over; of another one, only this is known.
    if descriptor.aggregate == "same" and experiment.store.last_leg < last:
        raise Refused(RefusalCode.AGAINST_SCHEDULE, f"leg {last} was not served here yet")


def _adds_figures(leg: SecureLeg, experiment: AgreedExperiment, policy: Policy) -> bool:
    """Return whether this hospital adds figures: if it may, and enough others do.

    The coordinator chooses who drops out, and may know what c members add. However it chooses, the
    figures of `minimum-cohort` hospitals are in the total, and at least two are unknown to it.
    """
    store: ExperimentStore = experiment.store
    adding = who_adds_closing_figures(store, leg.cohort)
    # The policy may have become stricter since this hospital told the others that it adds figures.
    is_allowed = (
        "held-out" in policy.metrics and experiment.training.held_out >= policy.minimum_held_out
    )
    is_private = experiment.training.settings.privacy_unit != "none"  # figures have no noise
    if is_private or not is_allowed or experiment.hospital not in adding:
        return False
    certain = len(adding) - (len(leg.cohort) - leg.threshold)
    colluding = most_colluding(len(store.announcements))
    return certain >= max(experiment.descriptor.minimum_cohort, colluding + 2)
