"""Whether a request is the leg that the agreed schedule has next, and what it may carry.

The hospital derives from the descriptor how each leg ends and which rounds it has. A coordinator
that asks for anything else is refused: it can neither read a model more often nor have the same
rounds trained twice.
"""

import math

from client_app.state.experiment_store import ExperimentStore
from protocol.descriptor import Descriptor
from protocol.messages import Carries, Close, RefusalCode, TrainLeg
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg, schedule_commitment

from .agreement.agreed_experiment import AgreedExperiment
from .refusal import Refused


def check_leg(request: TrainLeg, experiment: AgreedExperiment) -> None:
    """Refuse a leg that the schedule does not have, with other rounds or with another ending."""
    legs, descriptor, store = experiment.legs, experiment.descriptor, experiment.store
    if request.leg > len(legs):
        raise _refused(f"there are {len(legs)} legs, not {request.leg}")
    leg = legs[request.leg - 1]
    _check_rounds(request, leg, descriptor, store)
    _check_ending(request, leg, descriptor, store)
    if request.carries is Carries.NOTHING and (store.last_leg or descriptor.first_model_is_given):
        raise _refused("only this hospital's first leg can begin without a model")


def follows_aggregation(number: int, experiment: AgreedExperiment) -> bool:
    """Return whether an aggregate can be new to this hospital in a leg.

    It is if the schedule has an aggregation from the last leg that was served here to the one
    before. So a coordinator can send one model of its own making for each aggregation, at most. Of
    a random schedule only the likely number of aggregations is known before it is opened.
    """
    descriptor, store = experiment.descriptor, experiment.store
    last = store.last_leg
    if descriptor.schedule_commitment is not None:
        may_be_new = number > last + 1 or (last, True) in store.endings()
        return may_be_new and store.aggregates + 1 <= most_aggregations(number - 1, descriptor)
    between = experiment.legs[max(last - 1, 0) : number - 1]
    return any(leg.ending is Ending.AGGREGATION for leg in between)


def check_given_first_model(model: ModelState, experiment: AgreedExperiment) -> None:
    """Refuse a model that is not a new aggregate, unless it is the agreed first model."""
    if experiment.store.last_leg or not experiment.descriptor.first_model_is_given:
        raise _refused("an aggregate, but there was no aggregation")
    experiment.training.check_first_model(model)


def record_leg(request: TrainLeg, experiment: AgreedExperiment) -> None:
    """Store what later legs are checked against."""
    store = experiment.store
    store.next_round = request.first_round + request.local_rounds
    if experiment.descriptor.schedule_commitment is not None:
        if request.carries is Carries.AGGREGATE and follows_aggregation(request.leg, experiment):
            store.aggregates += 1
        store.record_ending(request.leg, is_aggregation=request.recipient is None)


def check_opening(request: Close, experiment: AgreedExperiment) -> None:
    """Refuse to close an experiment whose legs were not those of the committed schedule."""
    descriptor, store = experiment.descriptor, experiment.store
    if descriptor.schedule_commitment is None:
        return
    seed = bytes.fromhex(request.schedule_seed or "")
    if schedule_commitment(seed) != descriptor.schedule_commitment:
        raise _refused("the schedule's seed is not the one that was committed to")
    drawn = descriptor.schedule(seed).legs
    for number, is_aggregation in store.endings():
        if (drawn[number - 1].ending is Ending.AGGREGATION) != is_aggregation:
            raise _refused(f"leg {number} did not end as the schedule had it")


def _check_rounds(
    request: TrainLeg, leg: Leg, descriptor: Descriptor, store: ExperimentStore
) -> None:
    # Only where legs draw a fraction of the hospitals does one have rounds to catch up on.
    earliest = leg.first_round if descriptor.fraction == 1 else store.next_round
    first, last = request.first_round, request.first_round + request.local_rounds - 1
    if last != leg.last_round or not earliest <= first <= leg.first_round:
        raise _refused(
            f"leg {leg.number} has the rounds {leg.first_round} to {leg.last_round}, "
            f"not {first} to {last}"
        )


def _check_ending(
    request: TrainLeg, leg: Leg, descriptor: Descriptor, store: ExperimentStore
) -> None:
    is_aggregation = request.recipient is None
    is_last = leg.last_round == descriptor.rounds - 1
    if descriptor.schedule_commitment is None or is_last:
        if is_aggregation != (leg.ending is Ending.AGGREGATION):
            raise _refused(f"leg {leg.number} ends in {leg.ending}")
        return
    served = 1 + sum(1 for _, was_aggregation in store.endings() if was_aggregation)
    if is_aggregation and served > most_aggregations(leg.number, descriptor):
        raise _refused(f"{served} aggregations in {leg.number} legs are too many")


def most_aggregations(legs: int, descriptor: Descriptor) -> float:
    """Return how many of so many legs may aggregate: four standard deviations above the mean."""
    p = (descriptor.daisy_period or 1) / (descriptor.aggregation_period or 1)
    return legs * p + 4 * math.sqrt(legs * p * (1 - p)) + 1


def _refused(detail: str) -> Refused:
    return Refused(RefusalCode.AGAINST_SCHEDULE, detail)
