"""Before the first leg of a generation: every member agrees, and they make its keys.

The coordinator carries announcements and sealed key shares between the hospitals. It can read none
of the key shares, and a list that it changed on the way makes keys that open nothing.
"""

from collections.abc import Mapping
from typing import TypeVar

from protocol.descriptor import Descriptor
from protocol.messages import (
    Announcement,
    ExchangeKeyShares,
    KeyShares,
    OpenKeyShares,
    Ready,
    Reply,
)
from protocol.sealing.bundle import BundleError, from_bundle, to_bundle
from protocol.sealing.membership import (
    SEALED_KEY_SHARE_BYTES,
    Announced,
    MembershipError,
    agreed_generation,
)
from strategies.identifiers import HospitalName
from strategies.session.exchange import Answer
from strategies.session.generation import Examples, Generation
from strategies.session.members import Members, WholeRequest
from strategies.session.quorum import ExperimentFailed
from strategies.session.sealed_study import SealedStudy
from strategies.settings import Weighting

from .approval import WAITING, ask_to_agree, ask_until_approved, check_not_rejected, waits

R = TypeVar("R", bound=Reply)


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
