"""A leg's request as exact bytes, signed once and sent again unchanged."""

from dataclasses import dataclass, field

from protocol.keys import SIGNATURE_BYTES
from protocol.messages import TrainLeg
from strategies.routing.planner import Assignment

from .members import Members
from .spool import Spool


@dataclass(frozen=True)
class SignedRequest:
    """A request's exact bytes, without the model in their middle, which stays in the spool."""

    head: bytes = field(repr=False)
    model: str  # its name in the spool; "" if the request carries none
    signature: bytes = field(repr=False)
    spool: Spool = field(repr=False)

    @property
    def key(self) -> str:
        """Return a unique id: the signature in hex."""
        return self.signature.hex()

    def to_bytes(self) -> bytes:
        model = self.spool.get(self.model) if self.model else b""
        return b"".join((self.head, model, self.signature))


def sign_assignment(
    assignment: Assignment, members: Members, experiment: str, spool: Spool
) -> SignedRequest:
    """Sign what a hospital is asked to do; the model stays in the spool."""
    names, queued = members.names, assignment.queued
    payload = spool.get(queued.model.name) if queued.model.name else b""
    request = TrainLeg(
        experiment=experiment,
        leg=assignment.leg,
        first_round=assignment.first_round,
        local_rounds=assignment.local_rounds,
        carries=queued.carries,
        sealed_in=queued.model.sealed_in,
        recipient=None if assignment.recipient is None else names[assignment.recipient],
        seen=members.heads.get(names[assignment.hospital]),
        payload=payload,
    )
    data = members.sign(request)
    end = len(data) - SIGNATURE_BYTES
    return SignedRequest(data[: end - len(payload)], queued.model.name, data[end:], spool)
