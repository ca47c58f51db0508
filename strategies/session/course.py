"""Where an experiment stands: whom it is with, what they agreed to, which models wait for whom."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from flwr.app import ConfigRecord

from protocol.audit_head import AuditHead
from protocol.descriptor import Descriptor
from protocol.keys import SIGNATURE_BYTES
from protocol.messages import TrainLeg
from protocol.model_bytes import ModelState, Wire
from protocol.schedule import Leg
from protocol.study.roster import Roster
from strategies.routing.planner import Plan, Planner, Task
from strategies.wrapped.adapter import Wrapped

from .exchange import Produce
from .journal import Journal, JournalError, State
from .members import Members


@dataclass(frozen=True)
class Carried:
    """A model as a request carries it: its name in the spool; an envelope with its sealing leg."""

    name: str
    sealed_in: int | None = None


@dataclass(frozen=True)
class SignedRequest:
    """A request's exact bytes, but for the model in their middle, which is in the spool."""

    head: bytes = field(repr=False)
    model: str
    signature: bytes = field(repr=False)

    @property
    def key(self) -> str:
        """What tells these bytes from any others: the coordinator signed no others like this."""
        return self.signature.hex()


@dataclass
class Course:
    """An experiment under way. `write` puts all of it on paper before a leg's first request.

    `present` are the hospitals that were there when the current leg was planned, from which its
    plan follows; nothing before it is planned.
    """

    journal: Journal
    members: Members
    descriptor: Descriptor
    agreed: ConfigRecord
    examples: Mapping[str, int | None]
    planner: Planner[Carried]
    wrapped: Wrapped
    legs_done: int = 0
    last_aggregation: int = 0
    present: frozenset[int] | None = None
    signed: dict[int, SignedRequest] = field(default_factory=dict)
    # A new generation that is being opened: its roster, and who agreed to it.
    next_generation: tuple[Roster, tuple[str, ...]] | None = None
    _on_paper: int | None = None  # the aggregation whose model and strategy's arrays are written

    @property
    def wire(self) -> Wire:
        return agreed_wire(self.descriptor)

    def plan(self, leg: Leg, present: Iterable[int]) -> Plan[Carried]:
        """Plan a leg and sign its requests; what is parked is asked for again, byte for byte."""
        self.present = frozenset(present)
        plan = self.planner.plan(leg, self.present)
        for task in plan.tasks:
            if task.leg == leg.number:
                self.signed[task.hospital] = self._sign(task)
        return plan

    def requests(self, plan: Plan[Carried]) -> dict[str, tuple[str, Produce]]:
        """Return what is to be sent, by name: what names the bytes, and how to make them."""
        return {
            self.members.names[task.hospital]: (request.key, self._producer(request))
            for task in plan.tasks
            for request in [self.signed[task.hospital]]
        }

    def keep(self, model: ModelState, leg: Leg) -> Carried:
        """Put an aggregate where requests find it."""
        self.last_aggregation = leg.number
        carried = Carried(f"aggregate-{leg.number}")
        self.journal.spool.put(carried.name, model.to_bytes(wire=self.wire))
        return carried

    def begin_generation(
        self,
        members: Members,
        descriptor: Descriptor,
        examples: Mapping[str, int | None],
        next_round: int,
    ) -> None:
        """Go on with other members, all of them from the last aggregate."""
        self.members, self.descriptor, self.examples = members, descriptor, examples
        aggregate = Carried(f"aggregate-{self.last_aggregation}")
        self.planner.begin_generation(len(members), next_round, aggregate)
        self.signed.clear()
        self.next_generation = None

    def leg_ended(self, leg: Leg) -> None:
        """Account for the end of a leg; requests that nobody will send again are forgotten."""
        self.legs_done, self.present = leg.number, None
        self.signed = {hospital: self.signed[hospital] for hospital in self.planner.parked}

    # --- on paper ---------------------------------------------------------------------------------

    def write(self, observer: Callable[[], Mapping[str, Any]]) -> None:
        """Write down where the experiment stands; models it no longer needs are dropped."""
        model, arrays = (f"{kind}-{self.last_aggregation}" for kind in ("current", "strategy"))

        def state() -> State:
            numbers, current, remembered = self.wrapped.to_state()
            if self._on_paper != self.last_aggregation:
                self.journal.spool.put(model, current.to_bytes())
                self.journal.spool.put(arrays, ModelState(remembered).to_bytes())
                self._on_paper = self.last_aggregation
            return {
                "descriptor": self.descriptor.to_bytes().hex(),
                "roster": self.members.roster.content.hex(),
                "members": list(self.members.names),
                "next_generation": self.next_generation
                and [self.next_generation[0].content.hex(), list(self.next_generation[1])],
                "examples": dict(self.examples),
                "heads": {name: head.model_dump() for name, head in self.members.heads.items()},
                "legs_done": self.legs_done,
                "last_aggregation": self.last_aggregation,
                "present": None if self.present is None else sorted(self.present),
                "signed": {
                    str(hospital): [request.head.hex(), request.model, request.signature.hex()]
                    for hospital, request in self.signed.items()
                },
                "planner": self.planner.to_state(lambda content: [content.name, content.sealed_in]),
                "wrapped": numbers,
                "observer": dict(observer()),
            }

        waiting = {content.name for content in self.planner.contents()}
        waiting |= {f"aggregate-{self.last_aggregation}"} if self.next_generation else set()
        self.journal.write(state, {*waiting, model, arrays})

    def restore(self, state: State) -> None:
        """Take over what `write` wrote down."""
        spool, last = self.journal.spool, state["last_aggregation"]
        self.planner.restore(state["planner"], lambda content: Carried(*content))
        self.wrapped.restore(
            state["wrapped"],
            ModelState.from_bytes(spool.get(f"current-{last}")),
            ModelState.from_bytes(spool.get(f"strategy-{last}")).parameters,
        )
        self.members.heads |= {
            name: AuditHead.model_validate(head) for name, head in state["heads"].items()
        }
        self.legs_done, self.last_aggregation, self._on_paper = state["legs_done"], last, last
        if state["next_generation"]:
            roster, names = state["next_generation"]
            self.next_generation = (Roster.from_content(bytes.fromhex(roster)), tuple(names))
        self.present = None if state["present"] is None else frozenset(state["present"])
        self.signed = {
            int(hospital): SignedRequest(bytes.fromhex(head), model, bytes.fromhex(signature))
            for hospital, (head, model, signature) in state["signed"].items()
        }

    def _sign(self, task: Task[Carried]) -> SignedRequest:
        names, content = self.members.names, task.parcel.content
        payload = self.journal.spool.get(content.name) if content.name else b""
        request = TrainLeg(
            experiment=self.descriptor.experiment,
            leg=task.leg,
            first_round=task.first_round,
            local_rounds=task.local_rounds,
            carries=task.parcel.carries,
            sealed_in=content.sealed_in,
            recipient=None if task.recipient is None else names[task.recipient],
            seen=self.members.heads.get(names[task.hospital]),
            payload=payload,
        )
        data = self.members.sign(request)
        end = len(data) - SIGNATURE_BYTES
        return SignedRequest(data[: end - len(payload)], content.name, data[end:])

    def _producer(self, request: SignedRequest) -> Produce:
        def produce() -> bytes:
            model = self.journal.spool.get(request.model) if request.model else b""
            return b"".join((request.head, model, request.signature))

        return produce


def node_of(hospital: int) -> int:
    """Return by what number the wrapped strategy knows a hospital, whatever Flower's node is."""
    return hospital + 1  # 0 would be nobody


def agreed_wire(descriptor: Descriptor) -> Wire:
    """Return in what numbers models travel."""
    wire: Any = descriptor.training.get("wire-dtype", "same")
    if wire not in get_args(Wire):
        raise ValueError(f"wire-dtype must be one of {', '.join(get_args(Wire))}, got {wire!r}")
    return cast(Wire, wire)


def read_descriptor(state: State, expected: Descriptor) -> Descriptor:
    """Return the descriptor an experiment began with; refuse to go on with another."""
    descriptor = Descriptor.from_bytes(bytes.fromhex(state["descriptor"]))
    if descriptor != expected.model_copy(update={"roster": descriptor.roster}):
        raise JournalError(
            f"experiment {descriptor.experiment} began with other settings, to which the hospitals "
            "agreed: start a new one"
        )
    return descriptor
