"""What an experiment asks of this hospital, counted from its descriptor."""

import math

from client_app.hospital.leg_order import most_aggregations
from client_app.hospital.privacy.planned import experiment_epsilon
from client_app.state.experiment_ledger import PrivacyTerms, Terms
from learning.privacy.plan import is_cancelled
from protocol.schedule import Ending
from protocol.secure_sum.secure_leg import most_colluding
from protocol.study.roster import Roster, fingerprint

from .agreed_experiment import Agreement

# The rest is cut off: the ledger stores terms, and the coordinator chooses how long options are.
_LONGEST_OPTIONS = 2000


def terms_of(agreement: Agreement, roster: Roster, delta: float) -> Terms:
    """Return the terms of an experiment that has passed every check of its settings."""
    descriptor, training = agreement.descriptor, agreement.training
    legs = len(agreement.legs)
    aggregations = sum(leg.ending is Ending.AGGREGATION for leg in agreement.legs)
    is_random = descriptor.schedule_commitment is not None
    if is_random:  # the most that the agent serves
        aggregations = min(legs, int(most_aggregations(legs, descriptor)))
    given = descriptor.first_model if descriptor.first_model_is_given else None
    settings = training.settings.as_config()
    options = str(settings.pop("model-options"))
    return Terms(
        study=roster.study,
        members=len(roster.members),
        coordinator=fingerprint(roster.coordinator),
        model=training.settings.model,
        model_options=options[:_LONGEST_OPTIONS],
        parameters=training.parameters,
        training={key: value for key, value in settings.items() if key != "model"},
        rounds=descriptor.rounds,
        legs=legs,
        hand_overs=legs - 1 if is_random else legs - aggregations,
        aggregations=aggregations,
        is_random=is_random,
        fraction=descriptor.fraction,
        sealed=descriptor.sealed,
        averaging=descriptor.averaging,
        aggregate=descriptor.aggregate,
        minimum_cohort=descriptor.minimum_cohort,
        init=descriptor.init,
        first_model=given.hex() if given is not None else None,
        privacy=_privacy(agreement, roster, delta),
    )


def _privacy(agreement: Agreement, roster: Roster, delta: float) -> PrivacyTerms | None:
    settings = agreement.training.settings
    if settings.privacy_unit == "none":
        return None
    epsilon = experiment_epsilon(agreement.descriptor, settings, delta)
    return PrivacyTerms(
        unit=settings.privacy_unit,
        epsilon=epsilon if math.isfinite(epsilon) else None,
        delta=delta,
        cancelled=is_cancelled(settings),
        colluding=most_colluding(len(roster.members)),
    )
