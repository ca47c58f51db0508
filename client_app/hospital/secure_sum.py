"""The hospital's part in secure sums: mask a model, sign the survivors, reveal shares.

One cohort and one survivor set per leg: what was answered is stored before the answer leaves, and
the same leg is never answered for another cohort or other survivors.
"""

import logging
from collections.abc import Callable
from functools import partial

from client_app.state.experiment_store import ExperimentStore
from protocol.messages import (
    EvaluateFinal,
    Masked,
    RefusalCode,
    Reveal,
    SharesRevealed,
    SignSurvivors,
    Survivors,
    TrainLeg,
)
from protocol.model_bytes import ModelState
from protocol.sealing.bundle import BundleError, from_bundle, to_bundle
from protocol.sealing.keys import Identity
from protocol.secure_sum.member import Member
from protocol.secure_sum.secure_leg import SecureLeg, SecureSumError
from protocol.secure_sum.statements import Statement
from protocol.secure_sum.total import LastAggregate
from protocol.secure_sum.vector import Vector
from protocol.study.roster import Roster

from .aggregate import last_aggregate, vector_form
from .agreement.agreed_experiment import AgreedExperiment
from .agreement.policy import Policy
from .figures import Figures, shared_figures
from .keys import keys_of
from .refusal import Refused

logger = logging.getLogger(__name__)
_LEG, _SURVIVORS = "secure-leg", "secure-survivors"


def check_cohort(
    request: TrainLeg | EvaluateFinal,
    experiment: AgreedExperiment,
    policy: Policy,
    pinned: Roster,
) -> SecureLeg:
    """Return the secure leg of a request, or refuse a cohort that could betray this hospital."""
    members = experiment.store.announcements
    cohort = request.cohort or ()
    least = experiment.threshold
    if least < policy.minimum_cohort:
        raise Refused(
            RefusalCode.AGAINST_POLICY,
            f"a sum may be of {least} of {len(members)} members, fewer than minimum-cohort",
        )
    for name in cohort:
        identity = experiment.roster.identity_of(name)
        if name not in members or identity is None or pinned.identity_of(name) != identity:
            raise Refused(RefusalCode.COHORT_REFUSED, f"{name} is no member now")
    if experiment.hospital not in cohort:
        raise Refused(RefusalCode.COHORT_REFUSED, "this hospital is not in the cohort")
    try:
        return _leg(experiment, request.leg, cohort)
    except SecureSumError as error:
        raise Refused(RefusalCode.COHORT_REFUSED, str(error)) from error


def mask_model(
    leg: SecureLeg,
    experiment: AgreedExperiment,
    identity: Identity,
    policy: Policy,
    *,
    trained: ModelState,
    untrained: ModelState,
    figures: Figures,
    is_trained: bool,
) -> Masked:
    """Trip 1: return the trained model under masks, and store what the later trips need."""
    store = experiment.store
    form = vector_form(experiment)
    weight = experiment.examples if experiment.descriptor.weighted else 1
    added = shared_figures(store, leg.cohort, figures)
    is_private = experiment.training.settings.privacy_unit != "none"
    encode = partial(form.encode, weight=weight, figures=added, with_norm=not is_private)
    vector = _encode(encode, trained, untrained, policy)
    masked = mask_vector(leg, experiment, identity, vector, last_aggregate(store))
    return masked.model_copy(update={"untrained": not is_trained})


def mask_vector(
    leg: SecureLeg,
    experiment: AgreedExperiment,
    identity: Identity,
    vector: Vector,
    aggregate: LastAggregate,
) -> Masked:
    """Return a vector under masks, signed with the last aggregate; store what is needed later."""
    store = experiment.store
    masked = _member(experiment, identity).mask(leg, vector, aggregate=aggregate.to_bytes())
    store.delete("answer/sign-survivors", "answer/reveal", _SURVIVORS)
    store.put(
        _LEG,
        to_bundle(
            {
                "leg": leg.leg.to_bytes(8, "big"),
                "cohort": to_bundle(dict.fromkeys(leg.cohort, b"")),
                "statement": masked.statement.to_bytes(),
                "aggregate": aggregate.to_bytes(),
            }
        ),
    )
    return Masked(leg=leg.leg, payload=masked.to_bytes())


def sign_survivors(
    request: SignSurvivors, experiment: AgreedExperiment, identity: Identity
) -> Survivors:
    """Trip 2: check who has sent a vector, and sign it, once."""
    leg, stored = _stored_leg(request.leg, experiment)
    try:
        signature = _member(experiment, identity).sign_survivors(
            leg,
            _statements(request.payload),
            own=Statement.from_bytes(stored["statement"]),
            aggregate=stored["aggregate"],
        )
    except (SecureSumError, BundleError) as error:
        raise Refused(RefusalCode.SURVIVORS_REFUSED, str(error)) from error
    experiment.store.put(_SURVIVORS, request.payload)
    return Survivors(leg=request.leg, payload=signature)


def reveal(request: Reveal, experiment: AgreedExperiment, identity: Identity) -> SharesRevealed:
    """Trip 3: reveal what removes the masks from the survivors' sum."""
    leg, _ = _stored_leg(request.leg, experiment)
    signed = experiment.store.get(_SURVIVORS)
    if signed is None:
        raise Refused(RefusalCode.SURVIVORS_REFUSED, "no survivors were signed here in this leg")
    statements = _statements(signed)
    try:
        pieces = from_bundle(request.payload)
        revealed = _member(experiment, identity).reveal(
            leg,
            statements,
            from_bundle(pieces.get("signatures", b"")),
            from_bundle(pieces.get("shares", b"")),
        )
    except (SecureSumError, BundleError) as error:
        raise Refused(RefusalCode.SHARES_REFUSED, str(error)) from error
    return SharesRevealed(leg=request.leg, summands=len(statements), payload=revealed)


def _encode(
    encode: Callable[[ModelState], Vector],
    trained: ModelState,
    untrained: ModelState,
    policy: Policy,
) -> Vector:
    try:
        return encode(trained)
    except SecureSumError as error:
        if not policy.hand_on_diverged:
            raise Refused(RefusalCode.OUT_OF_RANGE, str(error)) from error
        # Whether training leaves the range depends on patients: it must not show.
        logger.warning("%s; the model is added untrained", error)
    try:
        return encode(untrained)
    except SecureSumError as error:
        raise Refused(RefusalCode.OUT_OF_RANGE, str(error)) from error


def _stored_leg(number: int, experiment: AgreedExperiment) -> tuple[SecureLeg, dict[str, bytes]]:
    stored = from_bundle(experiment.store.get(_LEG) or b"")
    if not stored or int.from_bytes(stored["leg"], "big") != number:
        raise Refused(RefusalCode.OLD_LEG, f"leg {number} is not the last secure sum here")
    return _leg(experiment, number, tuple(from_bundle(stored["cohort"]))), stored


def _leg(experiment: AgreedExperiment, number: int, cohort: tuple[str, ...]) -> SecureLeg:
    generation, name = keys_of(experiment.store).generation, experiment.descriptor.experiment
    return SecureLeg(name, generation, number, cohort, experiment.threshold)


def _statements(payload: bytes) -> dict[str, Statement]:
    return {name: Statement.from_bytes(data) for name, data in from_bundle(payload).items()}


def _member(experiment: AgreedExperiment, identity: Identity) -> Member:
    store: ExperimentStore = experiment.store
    keys = keys_of(store)
    return Member(
        experiment.hospital,
        identity,
        keys.sealing_key,
        keys.member_key,
        from_bundle(store.get("pair-keys") or b""),
        {name: announced.sealing_key for name, announced in store.announcements.items()},
        {member.name: member.identity for member in experiment.roster.members},
    )
