"""One leg at a hospital: open the model, check the request, train, seal the result."""

from client_app.state.experiment_store import ExperimentStore
from protocol import envelope
from protocol.envelope import Context, EnvelopeError
from protocol.keys import SealingKey
from protocol.messages import Carries, RefusalCode, Trained, TrainLeg
from protocol.model_bytes import Arrays, ModelState

from .agreed_experiment import AgreedExperiment
from .local_training import LocalTraining
from .policy import Policy
from .refusal import Refused

_AGGREGATE, _OPTIMIZER = "aggregate", "optimizer"


def serve_leg(request: TrainLeg, experiment: AgreedExperiment, policy: Policy) -> Trained:
    """Train the model of the request, and seal it for its recipient or send it for aggregation."""
    store, training = experiment.store, experiment.training
    if not 0 < request.local_rounds <= experiment.descriptor.rounds - request.first_round:
        raise Refused(
            RefusalCode.ROUNDS_REFUSED,
            f"{request.local_rounds} rounds from {request.first_round} are outside the descriptor",
        )
    model = _model(request, experiment)
    _check_recipient(request, experiment, policy)

    is_aggregate = request.carries is Carries.AGGREGATE
    metrics = training.evaluate(model, policy.minimum_held_out) if is_aggregate else None
    trained, progress = training.train(
        model,
        request.first_round,
        request.local_rounds,
        _optimizer(request, store, training, model),
        _anchor(store, training, model if is_aggregate else None),
    )

    settings = training.settings
    if is_aggregate and settings.proximal_mu:
        store.put(_AGGREGATE, request.payload)
    if request.recipient is None and settings.optimizer_state == "kept":
        store.put(_OPTIMIZER, ModelState({}, {}, trained.optimizer).to_bytes())
    sealed = request.recipient is not None and experiment.descriptor.sealed
    return Trained(
        leg=request.leg,
        sealed=sealed,
        loss=policy.rounded("loss", progress.loss),
        accuracy=policy.rounded("accuracy", progress.accuracy),
        held_out_loss=policy.rounded("held-out", metrics.loss if metrics else None),
        held_out_accuracy=policy.rounded("held-out", metrics.accuracy if metrics else None),
        payload=_payload(request, experiment, trained, sealed),
    )


def _model(request: TrainLeg, experiment: AgreedExperiment) -> ModelState:
    """Return the model to train: handed over, aggregated, or initialised here."""
    descriptor, training = experiment.descriptor, experiment.training
    match request.carries:
        case Carries.NOTHING:
            if descriptor.init != "own":
                raise Refused(RefusalCode.MALFORMED, "no model, but the first model is shared")
            return training.own_model()
        case Carries.AGGREGATE:
            return training.read(request.payload)
        case Carries.ENVELOPE if descriptor.sealed:
            return training.read(_open_envelope(request, experiment), handed_over=True)
        case Carries.ENVELOPE:
            return training.read(request.payload, handed_over=True)


def _open_envelope(request: TrainLeg, experiment: AgreedExperiment) -> bytes:
    store = experiment.store
    key, generation, member_key = _keys(store)
    leg = request.sealed_in
    if leg is None or not 0 < leg < request.leg:
        raise Refused(RefusalCode.MALFORMED, "the envelope was not sealed in an earlier leg")
    if store.was_opened(leg):
        raise Refused(RefusalCode.REPLAYED, f"an envelope of leg {leg} was opened before")
    context = Context(request.experiment, generation, leg, experiment.hospital)
    try:
        payload = envelope.open(request.payload, context=context, key=key, member_key=member_key)
    except EnvelopeError as error:
        raise Refused(RefusalCode.ENVELOPE_REFUSED, str(error)) from error
    store.mark_opened(leg)
    return payload


def _check_recipient(request: TrainLeg, experiment: AgreedExperiment, policy: Policy) -> None:
    recipient, store, roster = request.recipient, experiment.store, experiment.roster
    if recipient is None:
        if not policy.plain_aggregation:
            raise Refused(RefusalCode.AGAINST_POLICY, "plain aggregation is not allowed")
        return
    if roster.identity_of(recipient) is None:
        raise Refused(RefusalCode.UNKNOWN_RECIPIENT, f"{recipient} is not on the pinned roster")
    if experiment.descriptor.sealed:
        _keys(store)  # refuses before the keys are complete
        if recipient not in store.announcements:
            raise Refused(
                RefusalCode.UNKNOWN_RECIPIENT, f"{recipient} takes no part in this generation"
            )
    if recipient != experiment.hospital:  # a model that stays here is not sent to anybody
        policy.check_recipient(store.sent_to(recipient) + 1, store.sent + 1, len(roster.members))
        store.count_sent(recipient)


def _optimizer(
    request: TrainLeg, store: ExperimentStore, training: LocalTraining, model: ModelState
) -> Arrays:
    """Return the optimiser's state: the model's after a hand-over, else the kept or a fresh one."""
    if request.carries is Carries.ENVELOPE:
        return model.optimizer
    kept = store.get(_OPTIMIZER)
    if request.carries is Carries.AGGREGATE and kept is not None:
        return ModelState.from_bytes(kept).optimizer
    return training.fresh_optimizer()


def _anchor(
    store: ExperimentStore, training: LocalTraining, aggregate: ModelState | None
) -> Arrays | None:
    """Return what FedProx pulls towards: the aggregate last received here, if any."""
    if not training.settings.proximal_mu:
        return None
    if aggregate is not None:
        return aggregate.parameters
    last = store.get(_AGGREGATE)
    return training.read(last).parameters if last is not None else None


def _payload(
    request: TrainLeg, experiment: AgreedExperiment, trained: ModelState, sealed: bool
) -> bytes:
    store, wire = experiment.store, experiment.training.settings.wire_dtype
    if request.recipient is None:
        # An aggregation does not use the optimiser's state.
        return trained.without_optimizer().to_bytes(wire=wire)
    data = trained.to_bytes(wire=wire)
    if not sealed:
        return data
    _, generation, member_key = _keys(store)
    return envelope.seal(
        data,
        context=Context(request.experiment, generation, request.leg, request.recipient),
        recipient_key=store.announcements[request.recipient].sealing_key,
        member_key=member_key,
    )


def _keys(store: ExperimentStore) -> tuple[SealingKey, bytes, bytes]:
    key, generation = store.sealing_key, store.get("generation-digest")
    member_key = store.get("member-key")
    if key is None or generation is None or member_key is None:
        raise Refused(RefusalCode.NOT_SET_UP, "the experiment's keys are not complete yet")
    return key, generation, member_key
