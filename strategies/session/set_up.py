"""Before the first leg and after the last: agreement, keys, and the delivery of the final model.

The coordinator carries announcements and sealed shares between the hospitals; it can read none of
the shares, and a list that it changed on the way makes keys that open nothing.
"""

from collections.abc import Mapping
from functools import partial
from typing import TypeVar

from protocol.bundle import BundleError, from_bundle, to_bundle
from protocol.descriptor import Descriptor
from protocol.messages import (
    Announcement,
    Close,
    ExchangeKeyShares,
    KeyShares,
    OpenKeyShares,
    Ready,
    Reply,
    SetUp,
)

from .exchange import Answer, Produce
from .members import ExperimentFailed, Members

R = TypeVar("R", bound=Reply)


def set_up(members: Members, descriptor: Descriptor, *, timeout: float) -> dict[str, int | None]:
    """Have every member agree and make the keys; return their numbers of examples, where told."""
    experiment = descriptor.experiment
    agreed = _all(Announcement, _agree(members, descriptor, timeout), "agree")
    if descriptor.sealed:
        announcements = {name: reply.payload for name, reply in agreed.items()}
        _make_keys(members, experiment, announcements, timeout=timeout)
    return {name: reply.examples for name, reply in agreed.items()}


def who_agrees(members: Members, descriptor: Descriptor, *, timeout: float) -> dict[str, str]:
    """Ask all members to agree to a new generation; return the reason for each refusal, or ""."""
    answers = _agree(members, descriptor, timeout)
    return {
        name: "" if isinstance(answer.reply, Announcement) else answer.problem or "answered oddly"
        for name, answer in answers.items()
    }


def _agree(members: Members, descriptor: Descriptor, timeout: float) -> dict[str, Answer]:
    request = SetUp(experiment=descriptor.experiment, payload=descriptor.to_bytes())
    return members.ask_all(request, timeout=timeout)


def deliver(
    members: Members, experiment: str, model: bytes, *, timeout: float
) -> Mapping[str, Answer]:
    """Close the experiment; who does not answer has missed only the delivery."""
    return members.ask_all(Close(experiment=experiment, payload=model), timeout=timeout)


def _make_keys(
    members: Members,
    experiment: str,
    announcements: Mapping[str, bytes],
    *,
    timeout: float,
) -> None:
    request = ExchangeKeyShares(experiment=experiment, payload=to_bundle(announcements))
    answers = members.ask_all(request, timeout=timeout)
    sealed: dict[str, dict[str, bytes]] = {}
    for name, reply in _all(KeyShares, answers, "exchange keys").items():
        try:
            sealed[name] = from_bundle(reply.payload)
        except BundleError as error:
            raise ExperimentFailed(f"{name} sent no key shares: {error}") from error
    requests: dict[str, tuple[str, Produce]] = {}
    for recipient in members.names:
        pieces = {
            sender: shares[recipient] for sender, shares in sealed.items() if recipient in shares
        }
        data = members.sign(OpenKeyShares(experiment=experiment, payload=to_bundle(pieces)))
        requests[recipient] = ("open-key-shares", partial(bytes, data))
    answers = members.ask(requests, timeout=timeout, group="open-key-shares")
    tags = {name: r.confirmation for name, r in _all(Ready, answers, "make its key").items()}
    if len(set(tags.values())) > 1:
        raise ExperimentFailed(
            "the hospitals did not derive the same member key: one of them gave different key "
            "shares to different hospitals"
        )


def _all(kind: type[R], answers: Mapping[str, Answer], what: str) -> dict[str, R]:
    """Return everybody's reply; an experiment begins with all members or not at all."""
    replies: dict[str, R] = {}
    for name, answer in answers.items():
        if not isinstance(answer.reply, kind):
            raise ExperimentFailed(
                f"{name} did not {what}: {answer.problem or 'it answered something else'}"
            )
        replies[name] = answer.reply
    return replies
