"""Admit a request, and find the reply it got if it was answered before."""

from client_app.hospital.refusal import Refused
from client_app.state.audit_log import AuditLog
from client_app.state.experiment_store import ExperimentStore
from client_app.state.store import STOPPED, Store
from protocol.descriptor import Descriptor, DescriptorError
from protocol.message_bytes import decode_signed_request, is_signed_by
from protocol.messages import (
    ANY_HOSPITAL,
    Close,
    EvaluateFinal,
    ExchangeKeyShares,
    ExperimentRequest,
    Hello,
    MessageError,
    OpenKeyShares,
    RefusalCode,
    Request,
    Reveal,
    SetUp,
    SignSurvivors,
    TrainLeg,
    Vouch,
)
from protocol.study.roster import Roster


def admit(data: bytes, name: str, store: Store, roster: Roster, audit_log: AuditLog) -> Request:
    """Return the request if the coordinator has signed it for this hospital; else refuse it."""
    try:
        request = decode_signed_request(data)
    except MessageError as error:
        raise Refused(RefusalCode.MALFORMED, str(error)) from error
    if not is_signed_by(roster.coordinator, data):
        raise Refused(RefusalCode.BAD_SIGNATURE, "not signed by the pinned coordinator")
    everybody = isinstance(request, Hello) and request.hospital == ANY_HOSPITAL
    if request.study != roster.study or not (everybody or request.hospital == name):
        raise Refused(
            RefusalCode.MISADDRESSED,
            f"for {request.hospital} in {request.study}: is this SuperNode connected to the "
            "agent of another hospital?",
        )
    _check_rollback(request, store, audit_log)
    return request


def cached_reply(request: Request, digest: bytes, store: Store, roster: Roster) -> bytes | None:
    """Return the reply these very bytes got before, or None if they are new.

    Refuses a request in whose place another one was answered.
    """
    if isinstance(request, Hello | Vouch):
        return None  # answered anew: it changes nothing
    experiment = ExperimentStore(store, request.experiment)
    leg = request.leg if isinstance(request, TrainLeg) else None
    of_leg = TrainLeg | SignSurvivors | Reveal | EvaluateFinal
    in_leg = request.leg if isinstance(request, of_leg) else None
    if in_leg is not None and in_leg < experiment.last_leg:
        raise Refused(RefusalCode.OLD_LEG, f"leg {in_leg} after leg {experiment.last_leg}")
    cached_close = experiment.cached_reply("close") if isinstance(request, Close) else None
    if experiment.ending and cached_close is None:
        # Its keys are destroyed: an old set-up, sent again, must not open it a second time.
        raise Refused(RefusalCode.UNKNOWN_EXPERIMENT, f"{request.experiment} {experiment.ending}")
    if isinstance(request, SetUp) and _opens_generation(experiment, digest, roster):
        return None
    if leg is not None and leg > experiment.last_leg:
        return None  # before the last leg's model is decrypted
    cached = store_of(request, store).cached_reply(request.kind)
    if cached is None:
        return None
    answered, reply = cached
    if answered != digest:
        if isinstance(request, SetUp):
            # A set-up for another roster is refused as such: the operator can `join` it.
            read_descriptor(request, roster)
        raise Refused(RefusalCode.CONFLICTING_REQUEST, f"another {request.kind} was answered")
    return reply


def store_of(request: ExperimentRequest, store: Store) -> ExperimentStore:
    """Return the store a request belongs to.

    Requests that set up keys belong to the latest generation, all others to the present one.
    """
    experiment = ExperimentStore(store, request.experiment)
    sets_up_keys = isinstance(request, SetUp | ExchangeKeyShares | OpenKeyShares)
    return experiment.latest_generation if sets_up_keys else experiment


def read_descriptor(request: SetUp, roster: Roster) -> Descriptor:
    """Return the descriptor of a set-up if it is for this experiment and the pinned roster."""
    try:
        descriptor = Descriptor.from_bytes(request.payload)
    except DescriptorError as error:
        raise Refused(RefusalCode.MALFORMED, str(error)) from error
    if descriptor.experiment != request.experiment:
        raise Refused(RefusalCode.MALFORMED, "the descriptor is of another experiment")
    if descriptor.roster != roster.digest:
        raise Refused(RefusalCode.ANOTHER_ROSTER, "not for the roster that is pinned here")
    return descriptor


def _check_rollback(request: Request, store: Store, audit_log: AuditLog) -> None:
    """Stop for good if the coordinator has seen a line of the audit log that is missing here."""
    seen = request.seen if isinstance(request, TrainLeg) else None
    if seen is not None and audit_log.is_behind(seen) and _is_known(request, store):
        with store.transaction():
            store.put(STOPPED, f"line {seen.sequence} of the audit log was seen".encode())
    if (reason := store.get(STOPPED)) is not None:
        raise Refused(
            RefusalCode.ROLLED_BACK,
            f"the state was restored from an old backup ({reason.decode(errors='replace')}); see "
            "`feddc hospital check`",
        )


def _is_known(request: Request, store: Store) -> bool:
    # What was seen in an unknown experiment may be from before the operator's `reset`.
    return isinstance(request, TrainLeg) and request.experiment in store.experiments()


def _opens_generation(experiment: ExperimentStore, digest: bytes, roster: Roster) -> bool:
    """Return whether a set-up is new, and the pinned roster is newer than the latest keys'."""
    known = experiment.next_generation.roster or experiment.roster
    cached = experiment.latest_generation.cached_reply("set-up")
    is_new = cached is not None and cached[0] != digest
    return is_new and known is not None and roster.generation > known.generation
