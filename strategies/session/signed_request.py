"""A leg's request as exact bytes, signed once and sent again unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.messages import Carries, Request, TrainLeg
from protocol.sealing.keys import SIGNATURE_BYTES
from strategies.identifiers import HospitalName
from strategies.routing.planner import Assignment

from .members import Members
from .storage.spool import Spool


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
    assignment: Assignment,
    members: Members,
    experiment: str,
    spool: Spool,
    *,
    cohort: tuple[str, ...] | None = None,
    vouchers: Mapping[str, str] | None = None,
) -> SignedRequest:
    """Sign what a hospital is asked to do; the model stays in the spool.

    `cohort` are the members of a secure sum, if the leg ends in one; `vouchers` are signatures over
    the sum that the request carries, if it is of the former generation.
    """
    names, queued = members.names, assignment.queued
    hospital = names[assignment.hospital]
    request = TrainLeg(
        experiment=experiment,
        leg=assignment.leg,
        first_round=assignment.first_round,
        local_rounds=assignment.local_rounds,
        carries=queued.carries,
        sealed_in=queued.model.sealed_in,
        recipient=None if assignment.recipient is None else names[assignment.recipient],
        cohort=cohort,
        vouchers=vouchers if queued.carries is Carries.SUM else None,
        seen=members.heads.get(hospital),
    )
    return sign_with_model(request, hospital, members, spool, queued.model.name)


def sign_with_model(
    request: Request, hospital: HospitalName, members: Members, spool: Spool, model: str
) -> SignedRequest:
    """Sign a request whose payload is a model in the spool; "" stands for no model."""
    payload = spool.get(model) if model else b""
    data = members.sign(request.model_copy(update={"payload": payload}), hospital)
    end = len(data) - SIGNATURE_BYTES
    return SignedRequest(data[: end - len(payload)], model, data[end:], spool)
