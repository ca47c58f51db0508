"""One leg at a hospital: open the model, check the request, train, seal the result."""

import logging

from client_app.state.experiment_store import ExperimentStore
from learning.metrics import Metrics
from learning.trainer import Progress
from protocol.messages import Carries, Masked, RefusalCode, Trained, TrainLeg
from protocol.model_bytes import Arrays, ModelState
from protocol.sealing import envelope
from protocol.sealing.envelope import Context, EnvelopeError
from protocol.sealing.keys import Identity
from protocol.secure_sum.secure_leg import SecureLeg
from protocol.study.roster import Roster

from .aggregate import read_sum, record_aggregate, with_aggregate, without_aggregate
from .agreement.agreed_experiment import AgreedExperiment
from .agreement.policy import Policy
from .counters import rounds_since_aggregate, with_counters
from .figures import Figures
from .keys import keys_of
from .leg_order import check_given_first_model, check_leg, follows_aggregation, record_leg
from .local_training import LocalTraining
from .privacy.carried_noise import CarriedNoise
from .privacy.private_leg import private_leg
from .privacy.spending import Spending
from .refusal import Refused
from .secure_sum import check_cohort, mask_model

logger = logging.getLogger(__name__)
_AGGREGATE, _OPTIMIZER = "aggregate", "optimizer"
_AGGREGATES = (Carries.AGGREGATE, Carries.SUM)


def serve_leg(
    request: TrainLeg,
    experiment: AgreedExperiment,
    identity: Identity,
    policy: Policy,
    pinned: Roster,
    spending: Spending,
) -> Trained | Masked:
    """Train the model of the request, and seal it for its recipient or send it for aggregation.

    `pinned` is the roster as the operator has pinned it now, which may be a later one than the
    experiment's. `spending` charges the leg; past the budget the model goes on as it came.
    """
    store, training = experiment.store, experiment.training
    if experiment.descriptor.sealed:
        keys_of(store)  # no leg is served before the members have made the keys
    check_leg(request, experiment)
    model = _model(request, experiment)
    secure_leg = _check_recipient(request, experiment, policy, pinned)

    is_aggregate = request.carries in _AGGREGATES
    # What is not sent is not computed: its time would depend on the number of patients.
    is_private = training.settings.privacy_unit != "none"
    is_evaluated = is_aggregate and "held-out" in policy.metrics and not is_private
    metrics = training.evaluate(model, policy.minimum_held_out) if is_evaluated else None
    begun, steps = _begun(request, store, training, model)
    rounds = request.local_rounds
    untrained = with_counters(begun, batches=request.first_round + rounds, steps=steps + rounds)
    anchor = _anchor(experiment, model if is_aggregate else None)
    is_trained = spending.charge(request, experiment)
    figures: Figures = {}
    if is_private:
        if not is_trained:
            logger.warning("leg %d: the privacy budget is spent; untrained", request.leg)
        noise = spending.new_noise()
        trained = private_leg(request, experiment, begun, noise, anchor, is_trained=is_trained)
    else:
        trained, progress = training.train(
            begun, request.first_round, rounds, begun.optimizer, anchor
        )
        figures = _figures(policy, progress, metrics)
    if policy.hand_on_diverged and not trained.is_finite(wire=training.settings.wire_dtype):
        # Whether training overflows depends on patients: it must not show.
        logger.warning("leg %d: training diverged; the model goes on untrained", request.leg)
        trained = untrained

    settings = training.settings
    if is_aggregate and settings.proximal_mu:
        store.put(_AGGREGATE, model.to_bytes())
    if request.recipient is None and settings.optimizer_state == "kept":
        store.put(_OPTIMIZER, ModelState({}, {}, trained.optimizer).to_bytes())
    record_leg(request, experiment)
    if secure_leg is not None:
        return mask_model(
            secure_leg,
            experiment,
            identity,
            policy,
            trained=trained,
            untrained=untrained,
            figures=figures,
            is_trained=is_trained,
        )
    if experiment.descriptor.averaging == "secure":
        figures = {}  # nobody sees the figures of one hospital
    sealed = request.recipient is not None and experiment.descriptor.sealed
    return Trained(
        leg=request.leg,
        sealed=sealed,
        untrained=not is_trained,
        loss=figures.get("loss"),
        accuracy=figures.get("accuracy"),
        held_out_loss=figures.get("held_out_loss"),
        held_out_accuracy=figures.get("held_out_accuracy"),
        payload=_payload(request, experiment, trained, sealed),
    )


def _figures(policy: Policy, progress: Progress, metrics: Metrics | None) -> Figures:
    """Return the figures that the policy allows, rounded."""
    figures = {
        "loss": policy.rounded("loss", progress.loss),
        "accuracy": policy.rounded("accuracy", progress.accuracy),
        "held_out_loss": policy.rounded("held-out", metrics.loss if metrics else None),
        "held_out_accuracy": policy.rounded("held-out", metrics.accuracy if metrics else None),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _model(request: TrainLeg, experiment: AgreedExperiment) -> ModelState:
    """Return the model to train: handed over, aggregated, or initialised here."""
    descriptor, training = experiment.descriptor, experiment.training
    match request.carries:
        case Carries.NOTHING:
            return training.first_model()
        case Carries.AGGREGATE | Carries.SUM:
            return _aggregate(request, experiment)
        case Carries.ENVELOPE if descriptor.sealed:
            return training.read(_open_envelope(request, experiment), handed_over=True)
        case Carries.ENVELOPE:
            return training.read(request.payload, handed_over=True)


def _aggregate(request: TrainLeg, experiment: AgreedExperiment) -> ModelState:
    """Return the aggregate of a request, or the first model that all hospitals were given."""
    descriptor, training = experiment.descriptor, experiment.training
    is_sum = request.carries is Carries.SUM
    if not follows_aggregation(request.leg, experiment):
        if is_sum:
            raise Refused(RefusalCode.SUM_REFUSED, "a sum, but there was no aggregation")
        model = training.read(request.payload)
        check_given_first_model(model, experiment)
        return model
    verified = descriptor.averaging == "secure" and descriptor.aggregate == "verified"
    if is_sum != verified:
        raise Refused(RefusalCode.SUM_REFUSED, "aggregates are not sent in the agreed form")
    payload = request.payload
    model = read_sum(payload, experiment, request.vouchers) if verified else training.read(payload)
    if descriptor.averaging == "secure":
        record_aggregate(request, experiment)
    if verified:
        CarriedNoise(experiment.store).clear_if_summed(payload, experiment.hospital)
    return model


def _open_envelope(request: TrainLeg, experiment: AgreedExperiment) -> bytes:
    store = experiment.store
    keys = keys_of(store)
    leg = request.sealed_in
    if leg is None or not 0 < leg < request.leg:
        raise Refused(RefusalCode.MALFORMED, "the envelope was not sealed in an earlier leg")
    if store.was_opened(leg):
        raise Refused(RefusalCode.REPLAYED, f"an envelope of leg {leg} was opened before")
    context = Context(request.experiment, keys.generation, leg, experiment.hospital)
    try:
        payload = envelope.open(
            request.payload, context=context, key=keys.sealing_key, member_key=keys.member_key
        )
    except EnvelopeError as error:
        raise Refused(RefusalCode.ENVELOPE_REFUSED, str(error)) from error
    store.mark_opened(leg)
    if experiment.descriptor.averaging == "secure":
        return without_aggregate(payload, request.leg, experiment)
    return payload


def _check_recipient(
    request: TrainLeg, experiment: AgreedExperiment, policy: Policy, pinned: Roster
) -> SecureLeg | None:
    """Refuse a recipient, or a cohort, that may not receive a model; return the secure leg."""
    recipient, store, roster = request.recipient, experiment.store, experiment.roster
    is_secure = recipient is None and experiment.descriptor.averaging == "secure"
    if (request.cohort is not None) != is_secure:
        raise Refused(RefusalCode.COHORT_REFUSED, "a secure sum has a cohort, and nothing else has")
    if is_secure:
        return check_cohort(request, experiment, policy, pinned)
    if recipient is None:
        if not policy.plain_aggregation:
            raise Refused(RefusalCode.AGAINST_POLICY, "plain aggregation is not allowed")
        return None
    identity = roster.identity_of(recipient)
    if identity is None:
        raise Refused(RefusalCode.UNKNOWN_RECIPIENT, f"{recipient} takes no part in the study")
    if pinned.identity_of(recipient) != identity:
        raise Refused(
            RefusalCode.UNKNOWN_RECIPIENT, f"{recipient} is not on the roster that is pinned now"
        )
    if experiment.descriptor.sealed and recipient not in store.announcements:
        raise Refused(
            RefusalCode.UNKNOWN_RECIPIENT, f"{recipient} takes no part in this generation"
        )
    policy.check_recipient(store.sent_to(recipient) + 1, store.sent + 1, len(roster.members))
    store.count_sent(recipient)
    return None


def _begun(
    request: TrainLeg, store: ExperimentStore, training: LocalTraining, model: ModelState
) -> tuple[ModelState, int]:
    """Return the model as its training begins, with the optimiser's state and its steps so far.

    The state is the model's after a hand-over, else the kept or a fresh one.
    """
    steps = rounds_since_aggregate(request, store)
    kept = store.get(_OPTIMIZER) if request.carries in _AGGREGATES else None
    if request.carries is Carries.ENVELOPE:
        optimizer = model.optimizer
    elif kept is not None:
        optimizer = ModelState.from_bytes(kept).optimizer
    else:
        optimizer = training.fresh_optimizer()
    if training.settings.optimizer_state == "kept" and (
        kept or request.carries is Carries.ENVELOPE
    ):
        steps = request.first_round  # nothing was reset
    state = ModelState(model.parameters, model.buffers, optimizer)
    return with_counters(state, batches=request.first_round, steps=steps), steps


def _anchor(experiment: AgreedExperiment, aggregate: ModelState | None) -> Arrays | None:
    """Return what FedProx pulls towards: the aggregate last received here, or the shared first."""
    descriptor, training = experiment.descriptor, experiment.training
    if not training.settings.proximal_mu:
        return None
    if aggregate is not None:
        return aggregate.parameters
    last = experiment.store.get(_AGGREGATE)
    if last is not None:
        return ModelState.from_bytes(last).parameters
    is_built_here = descriptor.init == "shared" and not descriptor.first_model_is_given
    return training.first_model().parameters if is_built_here else None


def _payload(
    request: TrainLeg, experiment: AgreedExperiment, trained: ModelState, sealed: bool
) -> bytes:
    store, wire = experiment.store, experiment.training.settings.wire_dtype
    if request.recipient is None:
        # An aggregation does not use the optimiser's state.
        return trained.without_optimizer().to_bytes(wire=wire)
    # The recipient sets the counters: its own would mark a hospital that missed an aggregation.
    done = request.first_round + request.local_rounds
    data = with_counters(trained, batches=done, steps=0).to_bytes(wire=wire)
    if not sealed:
        return data
    if experiment.descriptor.averaging == "secure":
        data = with_aggregate(data, store)
    keys = keys_of(store)
    return envelope.seal(
        data,
        context=Context(request.experiment, keys.generation, request.leg, request.recipient),
        recipient_key=store.announcements[request.recipient].sealing_key,
        member_key=keys.member_key,
    )
