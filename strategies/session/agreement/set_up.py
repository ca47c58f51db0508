"""Before the first leg and after the last: agreement, keys, and the delivery of the final model.

The coordinator carries announcements and sealed key shares between the hospitals. It can read none
of the key shares, and a list that it changed on the way makes keys that open nothing.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from protocol.descriptor import Descriptor, Scalar
from protocol.messages import (
    Announcement,
    Close,
    ExchangeKeyShares,
    KeyShares,
    OpenKeyShares,
    Ready,
    Reply,
)
from protocol.model_bytes import ModelState
from protocol.schedule import schedule_commitment, schedule_seed
from protocol.sealing.bundle import BundleError, from_bundle, to_bundle
from protocol.sealing.membership import (
    SEALED_KEY_SHARE_BYTES,
    Announced,
    MembershipError,
    agreed_generation,
)
from strategies.identifiers import HospitalName
from strategies.session.exchange import Answer
from strategies.session.generation import Examples, Generation, wire_of
from strategies.session.members import Members, WholeRequest
from strategies.session.quorum import ExperimentFailed
from strategies.session.sealed_study import SealedStudy
from strategies.session.secure.secure_average import aggregate_of
from strategies.session.signed_request import sign_with_model
from strategies.session.storage.spool import Spool
from strategies.settings import FedDCSettings, Weighting

from .approval import WAITING, ask_to_agree, ask_until_approved, check_not_rejected, waits

R = TypeVar("R", bound=Reply)


def make_descriptor(
    settings: FedDCSettings,
    study: SealedStudy,
    rounds: int,
    config: ConfigRecord,
    first_model: ModelState,
    strategy: Strategy,
) -> Descriptor:
    """Return the settings that every hospital agrees to before the first leg."""
    options, is_shared = settings.schedule_options, settings.init == "shared"
    seed = schedule_seed(study.route_seed)
    shape: Any = config.get("shape", [])
    classes: Any = config.get("classes", 0)
    training: dict[str, Scalar] = {}
    for key, value in config.items():
        if isinstance(value, bool | int | float | str) and key != "classes":
            training[key] = value
        elif key not in ("shape", "classes"):
            raise ValueError(f"train_config: {key} must be a number, text, true or false")
    return Descriptor(
        experiment=study.experiment,
        rounds=rounds,
        daisy_period=settings.daisy_period,
        aggregation_period=settings.aggregation_period,
        ramp=options.ramp,
        tail=options.tail,
        schedule_commitment=schedule_commitment(seed) if options.random else None,
        fraction=settings.fraction,
        init=settings.init,
        first_model=first_model.digest(wire=wire_of(training)) if is_shared else None,
        first_model_is_given=is_shared and not study.first_model_from_seed,
        shape=tuple(shape),
        classes=classes,
        training=training,
        training_seed=study.training_seed,
        sealed=study.sealed,
        averaging=study.averaging,
        weighted=study.averaging == "secure" and settings.weighting == "examples",
        aggregate=aggregate_of(strategy) if study.averaging == "secure" else "verified",
        minimum_cohort=study.minimum_cohort if study.averaging == "secure" else 2,
        codebook=study.codebook,
        roster=study.roster.digest,
    )


def set_up(
    members: Members,
    descriptor: Descriptor,
    study: SealedStudy,
    weighting: Weighting,
    *,
    timeout: float,
) -> Generation:
    """Have every member agree and make the keys."""
    experiment = descriptor.experiment
    answers = ask_until_approved(members, descriptor, study, timeout=timeout)
    check_not_rejected(experiment, answers)
    agreed = _all(Announcement, answers, "agree")
    digest = b""
    if descriptor.sealed:
        announcements: dict[str, bytes] = {}
        for name, reply in agreed.items():
            try:
                announcements[name] = Announced.from_bytes(name, reply.payload).to_bytes()
            except MembershipError as error:
                raise ExperimentFailed(f"{error}: too short or too long") from error
        _make_keys(members, experiment, announcements, timeout=timeout)
        digest = agreed_generation(
            [Announced.from_bytes(name, data) for name, data in announcements.items()],
            experiment=experiment,
            descriptor=descriptor.to_bytes(),
            roster=members.roster,
        )
    examples = {name: reply.examples for name, reply in agreed.items()}
    if descriptor.averaging == "plain":
        check_examples(examples, weighting)
    publishing = tuple(name for name, reply in agreed.items() if reply.publish)
    return Generation(members, descriptor, examples, digest, publishing)


def check_examples(examples: Examples, weighting: Weighting) -> None:
    """Refuse weighting by examples where a hospital does not tell how many it has."""
    silent = [name for name, count in examples.items() if count is None]
    if silent and weighting != "equal":
        raise ExperimentFailed(
            f"weighting by examples needs their numbers, which {', '.join(silent)} keeps to "
            "itself: use equal weights"
        )


def collect_agreements(
    members: Members, descriptor: Descriptor, *, timeout: float
) -> dict[HospitalName, str]:
    """Ask all members to agree to a new generation; return the reason for each refusal, or ""."""
    answers = ask_to_agree(members, descriptor, timeout=timeout)
    return {name: _why_not(answer) for name, answer in answers.items()}


def close_experiment(
    members: Members, request: Close, spool: Spool, model: str, *, timeout: float
) -> Mapping[HospitalName, Answer]:
    """Deliver the final model; a hospital that does not answer has missed only that."""
    requests = {
        name: sign_with_model(request, name, members, spool, model) for name in members.names
    }
    return members.ask_each(requests, timeout=timeout, group=request.kind)


def _why_not(answer: Answer) -> str:
    if isinstance(answer.reply, Announcement):
        return ""
    return WAITING if waits(answer) else answer.problem or "unexpected reply type"


def _make_keys(
    members: Members,
    experiment: str,
    announcements: Mapping[str, bytes],
    *,
    timeout: float,
) -> None:
    exchange = ExchangeKeyShares(experiment=experiment, payload=to_bundle(announcements))
    answers = members.ask_all(exchange, timeout=timeout)
    sealed: dict[str, dict[str, bytes]] = {}
    for name, reply in _all(KeyShares, answers, "exchange keys").items():
        try:
            sealed[name] = from_bundle(reply.payload)
        except BundleError as error:
            raise ExperimentFailed(f"{name} sent no key shares: {error}") from error
        if any(len(share) != SEALED_KEY_SHARE_BYTES for share in sealed[name].values()):
            raise ExperimentFailed(f"{name} sent no key shares: they have another length")
    requests: dict[HospitalName, WholeRequest] = {}
    for recipient in members.names:
        pieces = {
            sender: shares[recipient] for sender, shares in sealed.items() if recipient in shares
        }
        request = OpenKeyShares(experiment=experiment, payload=to_bundle(pieces))
        data = members.sign(request, recipient)
        requests[recipient] = WholeRequest("open-key-shares", data)
    answers = members.ask_each(requests, timeout=timeout, group="open-key-shares")
    tags = {name: r.confirmation for name, r in _all(Ready, answers, "make its key").items()}
    if len(set(tags.values())) > 1:
        raise ExperimentFailed(
            "the hospitals did not derive the same member key: one of them gave different key "
            "shares to different hospitals"
        )


def _all(kind: type[R], answers: Mapping[HospitalName, Answer], what: str) -> dict[HospitalName, R]:
    """Return everybody's reply; an experiment starts with all members or not at all."""
    replies: dict[HospitalName, R] = {}
    for name, answer in answers.items():
        if not isinstance(answer.reply, kind):
            raise ExperimentFailed(
                f"{name} did not {what}: {answer.problem or 'unexpected reply type'}"
            )
        replies[name] = answer.reply
    return replies
