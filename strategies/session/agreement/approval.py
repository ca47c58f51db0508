"""Waiting until the operators of all hospitals have approved an experiment."""

from collections.abc import Mapping, Sequence
from logging import INFO, WARNING

from operation.clock import Clock
from operation.flower.logger import log
from protocol.approval import approval_fingerprint
from protocol.descriptor import Descriptor
from protocol.messages import Announcement, Refusal, RefusalCode, SetUp
from protocol.study.roster import Roster
from strategies.identifiers import HospitalName
from strategies.session.exchange import NOT_CONNECTED, Answer
from strategies.session.members import Members
from strategies.session.quorum import ExperimentFailed
from strategies.session.sealed_study import SealedStudy

WAITING = "waiting for approval"
# Every request that is refused adds a line to the hospital's audit log.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
# A hospital that does not answer in this time delays nobody: it is asked again.
_AGAIN_SECONDS = 60.0


def ask_until_approved(
    members: Members, descriptor: Descriptor, study: SealedStudy, *, timeout: float
) -> dict[HospitalName, Answer]:
    """Ask every member to agree, and those again whose operators have not decided yet.

    Returns as soon as all have agreed or one has refused. Once all have approved, waits until all
    are connected: hospitals come and go in the days that an approval takes.
    """
    answers = ask_to_agree(members, descriptor, timeout=timeout)
    wait = ApprovalWait(study, approval_fingerprint(descriptor, members.roster))
    while waiting := [name for name, answer in answers.items() if waits(answer)]:
        if any(not isinstance(a.reply, Announcement) and not waits(a) for a in answers.values()):
            return answers
        wait.pause(dict.fromkeys(waiting, WAITING))
        members.present()
        again = ask_to_agree(
            members, descriptor, timeout=min(timeout, _AGAIN_SECONDS), names=waiting
        )
        # A hospital that has not answered goes on waiting.
        answers |= {name: answer for name, answer in again.items() if answer.reply is not None}
    if wait.has_begun:
        log(INFO, "all hospitals have approved %s", descriptor.experiment)
        while absent := members.absent():
            wait.pause(dict.fromkeys(absent, NOT_CONNECTED.problem))
    return answers


def ask_to_agree(
    members: Members,
    descriptor: Descriptor,
    *,
    timeout: float,
    names: Sequence[HospitalName] = (),
) -> dict[HospitalName, Answer]:
    """Ask all members, or `names`, to agree to a descriptor."""
    request = SetUp(experiment=descriptor.experiment, payload=descriptor.to_bytes())
    return members.ask_all(request, timeout=timeout, names=names)


def waits(answer: Answer) -> bool:
    """Return whether a hospital waits for its operator's approval."""
    reply = answer.reply
    return isinstance(reply, Refusal) and reply.code is RefusalCode.WAITING_FOR_APPROVAL


def check_not_rejected(experiment: str, answers: Mapping[HospitalName, Answer]) -> None:
    """End the experiment if an operator has rejected it."""
    for name, answer in answers.items():
        reply = answer.reply
        if isinstance(reply, Refusal) and reply.code is RefusalCode.REJECTED:
            raise ExperimentFailed(
                f"{name} has rejected the experiment {experiment}: ask the hospital why; if it "
                "approves it after all, resume"
            )


class ApprovalWait:
    """Pauses between two requests, longer each time, up to the study's `approval_wait` in all."""

    def __init__(self, study: SealedStudy, fingerprint: str) -> None:
        self._study, self._fingerprint = study, fingerprint
        self._until: float | None = None
        self._pause = _FIRST_PAUSE
        self._reported: Mapping[HospitalName, str] = {}

    @property
    def has_begun(self) -> bool:
        return self._until is not None

    def pause(self, reasons: Mapping[HospitalName, str]) -> None:
        """Report for whom the experiment waits and why, and wait; raise an error at the limit."""
        clock, limit = self._study.clock, self._study.approval_wait
        now = clock.now()
        self._until = now + limit if self._until is None else self._until
        who = ", ".join(f"{name} ({why})" for name, why in reasons.items())
        if now >= self._until:
            raise ExperimentFailed(f"{self._study.experiment} can't begin after {limit:g} s: {who}")
        if reasons != self._reported:
            self._reported = reasons
            log(WARNING, "waiting up to %g s to begin: %s", limit, who)
            self._study.observer.waiting_for_approval(reasons, self._fingerprint)
        clock.sleep(min(self._pause, self._until - now))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class NewcomerWait:
    """How long a new generation is put off for newcomers that have not approved the experiment.

    The run goes on meanwhile with the present members. A roster that removes a member is never put
    off.
    """

    def __init__(self, clock: Clock, limit: float) -> None:
        self._clock, self._limit = clock, limit
        self._generation = 0
        self._until = self._next = 0.0
        self._pause = _FIRST_PAUSE

    def is_due(self, generation: int) -> bool:
        """Return whether to ask the members of this generation, again or for the first time."""
        now = self._clock.now()
        if generation != self._generation:
            self._generation, self._until, self._next = generation, now + self._limit, now
            self._pause = _FIRST_PAUSE
        return now >= self._next

    def late(
        self, present: Members, roster: Roster, reasons: Mapping[HospitalName, str]
    ) -> list[HospitalName]:
        """Return the newcomers to wait for; they stay out until then. None: nothing to wait for.

        `reasons` say why a member of the new roster does not agree, or "".
        """
        now, known = self._clock.now(), present.roster
        newcomers = [n for n, why in reasons.items() if why == WAITING and n not in present.names]
        removes = any(roster.identity_of(n) != known.identity_of(n) for n in present.names)
        if not newcomers or removes or now >= self._until:
            return []
        self._next = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return newcomers
