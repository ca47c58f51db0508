"""One leg at a hospital: open, check, train, seal."""

from client_app.state.experiment_store import Notebook
from protocol import envelope
from protocol.descriptor import Descriptor
from protocol.envelope import Context, EnvelopeError
from protocol.keys import SealingKey
from protocol.messages import Carries, RefusalCode, Trained, TrainLeg
from protocol.model_bytes import Arrays, ModelState
from protocol.study.roster import Roster

from .local_training import LocalTraining
from .policy import Policy
from .refusal import Refused

_AGGREGATE, _OPTIMIZER = "aggregate", "optimizer"


def serve_leg(
    request: TrainLeg,
    notebook: Notebook,
    descriptor: Descriptor,
    training: LocalTraining,
    policy: Policy,
    name: str,
    roster: Roster,
) -> Trained:
    """Train the model that the request brings and answer as it says."""
    if not 0 < request.local_rounds <= descriptor.rounds - request.first_round:
        raise Refused(RefusalCode.ROUNDS_REFUSED, "rounds outside the descriptor's")
    model = _model(request, notebook, descriptor, training, name)
    _check_recipient(request, notebook, policy, name, roster, descriptor.sealed)

    is_aggregate = request.carries is Carries.AGGREGATE
    figures = training.held_out(model, policy.minimum_held_out) if is_aggregate else None
    trained, progress = training.train(
        model,
        request.first_round,
        request.local_rounds,
        _optimizer(request, notebook, training, model),
        _anchor(notebook, training, model if is_aggregate else None),
    )

    settings = training.settings
    if is_aggregate and settings.proximal_mu:
        notebook.write(_AGGREGATE, request.payload)
    if request.recipient is None and settings.optimizer_state == "kept":
        notebook.write(_OPTIMIZER, ModelState({}, {}, trained.optimizer).to_bytes())
    sealed = request.recipient is not None and descriptor.sealed
    return Trained(
        leg=request.leg,
        sealed=sealed,
        loss=policy.rounded("loss", progress.loss),
        accuracy=policy.rounded("accuracy", progress.accuracy),
        held_out_loss=policy.rounded("held-out", figures.loss if figures else None),
        held_out_accuracy=policy.rounded("held-out", figures.accuracy if figures else None),
        payload=_payload(request, notebook, trained, training, sealed),
    )


def _model(
    request: TrainLeg,
    notebook: Notebook,
    descriptor: Descriptor,
    training: LocalTraining,
    name: str,
) -> ModelState:
    """Return the model to train: handed on, aggregated, or initialised here."""
    match request.carries:
        case Carries.NOTHING:
            if descriptor.init != "own":
                raise Refused(RefusalCode.MALFORMED, "no model, but the first one is shared")
            return training.own_model()
        case Carries.AGGREGATE:
            return training.read(request.payload)
        case Carries.ENVELOPE if descriptor.sealed:
            return training.read(_opened(request, notebook, name), travels=True)
        case Carries.ENVELOPE:
            return training.read(request.payload, travels=True)


def _opened(request: TrainLeg, notebook: Notebook, name: str) -> bytes:
    key, generation, member_key = _keys(notebook)
    leg = request.sealed_in
    if leg is None or not 0 < leg < request.leg:
        raise Refused(RefusalCode.MALFORMED, "an envelope sealed in no earlier leg")
    if notebook.was_opened(leg):
        raise Refused(RefusalCode.REPLAYED, f"an envelope of leg {leg} was opened before")
    context = Context(request.experiment, generation, leg, name)
    try:
        payload = envelope.open(request.payload, context=context, key=key, member_key=member_key)
    except EnvelopeError as error:
        raise Refused(RefusalCode.ENVELOPE_REFUSED, str(error)) from error
    notebook.opened(leg)
    return payload


def _check_recipient(
    request: TrainLeg, notebook: Notebook, policy: Policy, name: str, roster: Roster, sealed: bool
) -> None:
    recipient = request.recipient
    if recipient is None:
        if not policy.plain_aggregation:
            raise Refused(RefusalCode.AGAINST_POLICY, "plain aggregation is not allowed")
        return
    if roster.identity_of(recipient) is None:
        raise Refused(RefusalCode.UNKNOWN_RECIPIENT, f"{recipient} is not on the pinned roster")
    if sealed:
        _keys(notebook)  # none before they are made
    if sealed and recipient not in notebook.announcements:
        raise Refused(
            RefusalCode.UNKNOWN_RECIPIENT, f"{recipient} takes no part in this generation"
        )
    if recipient != name:  # a model that stays here is shown to nobody
        policy.check_recipient(
            notebook.sent_to(recipient) + 1, notebook.sent + 1, len(roster.members)
        )
        notebook.count_sent(recipient)


def _optimizer(
    request: TrainLeg, notebook: Notebook, training: LocalTraining, model: ModelState
) -> Arrays:
    """Return the optimiser's state: it travels with a handed-over model, and never else."""
    if request.carries is Carries.ENVELOPE:
        return model.optimizer
    kept = notebook.page(_OPTIMIZER)
    if request.carries is Carries.AGGREGATE and kept is not None:
        return ModelState.from_bytes(kept).optimizer
    return training.fresh_optimizer()


def _anchor(
    notebook: Notebook, training: LocalTraining, aggregate: ModelState | None
) -> Arrays | None:
    """Return what FedProx pulls towards: the aggregate last received here, if any."""
    if not training.settings.proximal_mu:
        return None
    if aggregate is not None:
        return aggregate.parameters
    last = notebook.page(_AGGREGATE)
    return training.read(last).parameters if last is not None else None


def _payload(
    request: TrainLeg,
    notebook: Notebook,
    trained: ModelState,
    training: LocalTraining,
    sealed: bool,
) -> bytes:
    wire = training.settings.wire_dtype
    if request.recipient is None:
        # What is aggregated has no use for optimiser state.
        return trained.without_optimizer().to_bytes(wire=wire)
    data = trained.to_bytes(wire=wire)
    if not sealed:
        return data
    _, generation, member_key = _keys(notebook)
    return envelope.seal(
        data,
        context=Context(request.experiment, generation, request.leg, request.recipient),
        recipient_key=notebook.announcements[request.recipient].sealing_key,
        member_key=member_key,
    )


def _keys(notebook: Notebook) -> tuple[SealingKey, bytes, bytes]:
    key, generation = notebook.sealing_key, notebook.page("generation-digest")
    member_key = notebook.page("member-key")
    if key is None or generation is None or member_key is None:
        raise Refused(RefusalCode.NOT_SET_UP, "the experiment's keys are not made yet")
    return key, generation, member_key
