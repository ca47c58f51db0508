"""Aggregates of secure sums: that they are the members' mean, and that all hospitals got the same.

A hospital accepts a sum only with the members' tag. It remembers the digest of the last aggregate
it received; members compare it when they hand a model over, and before they sign survivors.
"""

from collections.abc import Mapping

from client_app.state.experiment_store import ExperimentStore
from protocol.messages import Carries, RefusalCode, TrainLeg, Vouch, Vouched
from protocol.model_bytes import ModelState
from protocol.schedule import Ending
from protocol.sealing.keys import Identity
from protocol.secure_sum.secure_leg import SecureLeg, SecureSumError, most_colluding
from protocol.secure_sum.total import LastAggregate, Total
from protocol.secure_sum.vector import VectorForm

from .agreement.agreed_experiment import AgreedExperiment
from .keys import keys_of
from .refusal import Refused

_LAST = "last-aggregate"


def last_aggregate(store: ExperimentStore) -> LastAggregate:
    """Return the last aggregate that this hospital has received."""
    stored = store.get(_LAST)
    return LastAggregate() if stored is None else LastAggregate.from_bytes(stored)


def read_sum(
    payload: bytes, experiment: AgreedExperiment, vouchers: Mapping[str, str] | None = None
) -> ModelState:
    """Return the mean that a sum stands for, if members have made it.

    A sum of the former generation, whose keys are gone, must have the `vouchers` of enough members.
    """
    store, descriptor = experiment.store, experiment.descriptor
    keys = keys_of(store)
    try:
        total = Total.from_bytes(payload)
        form = vector_form(experiment, total.members)
        if vouchers is not None:
            _check_vouchers(LastAggregate.of(total.leg, payload), vouchers, experiment)
        else:
            name, generation = descriptor.experiment, keys.generation
            leg = SecureLeg(name, generation, total.leg, total.cohort, experiment.threshold)
            total.check(leg, form, keys.member_key, len(store.announcements))
        return total.mean(form).model
    except SecureSumError as error:
        raise Refused(RefusalCode.SUM_REFUSED, str(error)) from error


def vouch(request: Vouch, experiment: AgreedExperiment, identity: Identity) -> Vouched:
    """Check the sum that the next generation starts from, with the keys of this one; sign it."""
    read_sum(request.payload, experiment)
    aggregate = LastAggregate.of(Total.from_bytes(request.payload).leg, request.payload)
    known = last_aggregate(experiment.store)
    if aggregate.leg < known.leg or (aggregate.leg == known.leg and aggregate != known):
        raise Refused(RefusalCode.SUM_REFUSED, "not the last aggregate that was received here")
    return Vouched(payload=aggregate.voucher(identity, request.experiment))


def _check_vouchers(
    aggregate: LastAggregate, vouchers: Mapping[str, str], experiment: AgreedExperiment
) -> None:
    members, name = experiment.store.announcements, experiment.descriptor.experiment
    valid = [
        member
        for member, signature in vouchers.items()
        if member in members
        and aggregate.is_vouched_by(
            experiment.roster.identity_of(member) or b"", name, bytes.fromhex(signature)
        )
    ]
    needed = most_colluding(len(members)) + 1
    if len(valid) < needed:
        raise SecureSumError(f"{len(valid)} members vouch for the sum, {needed} are needed")


def read_final(payload: bytes, experiment: AgreedExperiment) -> ModelState:
    """Return the final model; refuse one that is not the last leg's mean, or a second one."""
    last = len(experiment.legs)
    if experiment.descriptor.aggregate == "same":
        model = experiment.training.read(payload)
    else:
        model = read_sum(payload, experiment)
        if int.from_bytes(payload[:8], "big") != last:
            raise Refused(RefusalCode.SUM_REFUSED, "the final model is not of the last leg")
    known = last_aggregate(experiment.store)
    if known.leg == last and known != LastAggregate.of(last, payload):
        raise Refused(RefusalCode.SUM_REFUSED, "another final model was evaluated here")
    return model


def record_final(payload: bytes, experiment: AgreedExperiment) -> None:
    """Remember which final model is evaluated here: members compare its digest."""
    final = LastAggregate.of(len(experiment.legs), payload)
    experiment.store.put(_LAST, final.to_bytes())


def record_aggregate(request: TrainLeg, experiment: AgreedExperiment) -> None:
    """Check that an aggregate is of the schedule's last aggregation, and remember it."""
    leg = _last_aggregation(request.leg, experiment)
    if request.carries is Carries.SUM:
        given = int.from_bytes(request.payload[:8], "big")
        if not _is_expected(given, leg, experiment):
            raise Refused(RefusalCode.SUM_REFUSED, f"a sum of leg {given} in leg {request.leg}")
        leg = given
    experiment.store.put(_LAST, LastAggregate.of(leg, request.payload).to_bytes())


def vector_form(experiment: AgreedExperiment, members: int = 0) -> VectorForm:
    """Return how models become integers in a generation of so many members; 0: the present."""
    training = experiment.training
    return VectorForm(
        *training.layouts,
        members=members or len(experiment.store.announcements),
        weighted=experiment.descriptor.weighted,
        narrow=training.settings.wire_dtype != "same",
    )


def with_aggregate(payload: bytes, store: ExperimentStore) -> bytes:
    """Return a hand-over's payload with the last aggregate before it, for the recipient."""
    return last_aggregate(store).to_bytes() + payload


def without_aggregate(opened: bytes, leg: int, experiment: AgreedExperiment) -> bytes:
    """Return a hand-over's payload, if the sender has the same last aggregate as this hospital.

    One that missed the last aggregate learns it here: it is what the sender vouches for.
    """
    store = experiment.store
    known, given = last_aggregate(store), LastAggregate.from_bytes(opened[: LastAggregate.BYTES])
    expected = _last_aggregation(leg, experiment)
    if not _is_expected(given.leg, expected, experiment) or given.leg < known.leg:
        raise Refused(RefusalCode.ENVELOPE_REFUSED, "the model is older than the last aggregation")
    if given.leg == known.leg and given != known:
        raise Refused(
            RefusalCode.ENVELOPE_REFUSED,
            "the sender's last aggregate is another one than this hospital's: the coordinator has "
            "sent hospitals different aggregates",
        )
    store.put(_LAST, given.to_bytes())
    return opened[LastAggregate.BYTES :]


def _last_aggregation(number: int, experiment: AgreedExperiment) -> int:
    """Return the schedule's last aggregation before a leg; 0 if there is none."""
    earlier = experiment.legs[: number - 1]
    return max((leg.number for leg in earlier if leg.ending is Ending.AGGREGATION), default=0)


def _is_expected(leg: int, expected: int, experiment: AgreedExperiment) -> bool:
    if experiment.descriptor.schedule_commitment is None:
        return leg == expected
    return leg >= last_aggregate(experiment.store).leg  # where the aggregations are is secret
