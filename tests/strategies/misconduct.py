"""Ways in which a hospital misbehaves, and rules that say when."""

import hashlib
from collections.abc import Callable

from flwr.app import Message, RecordDict

from protocol.message_bytes import decode_signed_reply, sign_reply
from protocol.messages import Reply, Request, TrainLeg
from protocol.model_bytes import ModelState
from protocol.records import from_records, to_records
from protocol.study.simulated_study import simulated_study

NAMES = [f"hospital-{number:02}" for number in range(1, 7)]
# The identities of simulated hospitals follow from the seed and a name alone.
_STUDY = simulated_study(3, NAMES)
# What a hospital does instead of answering: another reply, an error, or nothing (None).
Conduct = Callable[[Message, Message], Message | None]
Rule = Callable[[int, Request], Conduct | None]


def raises(message: Message, reply: Message) -> Message:
    raise RuntimeError("the hospital's disk is full")


def keeps_silent(message: Message, reply: Message) -> None:
    """Train and answer, but the answer gets lost."""


def is_deaf(message: Message, reply: Message) -> None:
    """Neither hear the request nor train: the grid does not even ask."""


def sends(content: RecordDict) -> Conduct:
    return lambda message, reply: Message(content, reply_to=message)


def answers(reply: Reply) -> Conduct:
    """Answer something else, signed as the hospital's answer."""
    return lambda message, _: Message(signed(message, reply), reply_to=message)


def signed(message: Message, reply: Reply, name: str = "") -> RecordDict:
    """Sign a reply as the simulated hospital that the message was for, or another."""
    request = from_records(message.content)
    name = name or NAMES[message.metadata.dst_node_id - 100]
    return to_records(
        sign_reply(
            reply,
            _STUDY.identities[name],
            study=_STUDY.roster.study,
            hospital=name,
            request=hashlib.sha256(request).digest(),
        )
    )


def tampers(change: Callable[[ModelState], ModelState]) -> Conduct:
    """Train as asked, but send something else than the model."""

    def conduct(message: Message, reply: Message) -> Message:
        trained = decode_signed_reply(from_records(reply.content))
        payload = change(ModelState.from_bytes(trained.payload)).to_bytes()
        forged = trained.model_copy(update={"payload": payload})
        return Message(signed(message, forged), reply_to=message)

    return conduct


def in_leg(leg: int, position: int, conduct: Conduct) -> Rule:
    """Let a hospital misbehave once, when first asked for a leg; asked again it behaves."""
    once = [conduct]

    def rule(who: int, request: Request) -> Conduct | None:
        asked = isinstance(request, TrainLeg) and request.leg == leg and who == position
        return once.pop() if asked and once else None

    return rule


def always(position: int, conduct: Conduct) -> Rule:
    def rule(who: int, request: Request) -> Conduct | None:
        return conduct if isinstance(request, TrainLeg) and who == position else None

    return rule


def at(kind: type[Request], position: int, conduct: Conduct) -> Rule:  # type: ignore[valid-type]
    return lambda who, r: conduct if isinstance(r, kind) and who == position else None  # type: ignore[arg-type]
