"""An experiment's state between two legs, as the journal keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.audit_head import AuditHead
from protocol.descriptor import Descriptor
from protocol.study.roster import Roster
from strategies.identifiers import HospitalName, Position
from strategies.session.signed_request import SignedRequest

from .journal import State
from .spool import Spool


@dataclass(frozen=True)
class NextGeneration:
    """A generation that is being opened: its roster, and the members that agreed to it."""

    roster: Roster
    names: tuple[HospitalName, ...]


@dataclass(frozen=True)
class Snapshot:
    """Everything a resumed run needs, besides the models in the spool.

    `planned_cohort` holds the hospitals that were present when the current leg was planned; its
    plan follows from them. `None`: no leg is planned. `secure_sum` is the state of a secure sum
    that is under way, `closing` that of the sum of figures at the end.
    """

    descriptor: Descriptor
    roster: Roster
    members: tuple[HospitalName, ...]
    next_generation: NextGeneration | None
    examples: Mapping[HospitalName, int | None]
    generation: bytes
    secure_sum: State | None
    closing: State | None
    vouchers: Mapping[str, str] | None
    heads: Mapping[HospitalName, AuditHead]
    legs_done: int
    last_aggregation: int
    planned_cohort: frozenset[Position] | None
    signed: Mapping[Position, SignedRequest]
    planner: Mapping[str, Any]
    wrapped: Mapping[str, Any]
    observer: Mapping[str, Any]

    def to_state(self) -> State:
        """Return the snapshot for JSON."""
        opening, cohort = self.next_generation, self.planned_cohort
        return {
            "descriptor": self.descriptor.to_bytes().hex(),
            "roster": self.roster.content.hex(),
            "members": list(self.members),
            "next_generation": opening and [opening.roster.content.hex(), list(opening.names)],
            "examples": dict(self.examples),
            "generation": self.generation.hex(),
            "secure_sum": self.secure_sum,
            "closing": self.closing,
            "vouchers": self.vouchers,
            "heads": {name: head.model_dump() for name, head in self.heads.items()},
            "legs_done": self.legs_done,
            "last_aggregation": self.last_aggregation,
            "planned_cohort": None if cohort is None else sorted(cohort),
            "signed": {
                str(hospital): [request.head.hex(), request.model, request.signature.hex()]
                for hospital, request in self.signed.items()
            },
            "planner": self.planner,
            "wrapped": self.wrapped,
            "observer": dict(self.observer),
        }

    @staticmethod
    def from_state(state: State, spool: Spool) -> "Snapshot":
        """Return the snapshot that `to_state` described."""
        opening, cohort = state["next_generation"], state["planned_cohort"]
        return Snapshot(
            descriptor=Descriptor.from_bytes(bytes.fromhex(state["descriptor"])),
            roster=Roster.from_content(bytes.fromhex(state["roster"])),
            members=tuple(map(HospitalName, state["members"])),
            next_generation=opening
            and NextGeneration(
                Roster.from_content(bytes.fromhex(opening[0])),
                tuple(map(HospitalName, opening[1])),
            ),
            examples={HospitalName(name): count for name, count in state["examples"].items()},
            generation=bytes.fromhex(state["generation"]),
            secure_sum=state["secure_sum"],
            closing=state["closing"],
            vouchers=state["vouchers"],
            heads={
                HospitalName(name): AuditHead.model_validate(head)
                for name, head in state["heads"].items()
            },
            legs_done=state["legs_done"],
            last_aggregation=state["last_aggregation"],
            planned_cohort=None if cohort is None else frozenset(map(Position, cohort)),
            signed={
                Position(int(hospital)): SignedRequest(
                    bytes.fromhex(head), model, bytes.fromhex(signature), spool
                )
                for hospital, (head, model, signature) in state["signed"].items()
            },
            planner=state["planner"],
            wrapped=state["wrapped"],
            observer=state["observer"],
        )
