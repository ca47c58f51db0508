"""The hospitals of an experiment, as the coordinator deals with them: by name, over signatures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.serverapp import Grid

from protocol.audit_head import AuditHead
from protocol.message_bytes import decode_signed_reply, is_reply_by, sign_request
from protocol.messages import MessageError, Reply, Request
from protocol.sealing.keys import Identity
from protocol.study.roster import Roster
from strategies.identifiers import HospitalName, NodeId, Position

from .exchange import NOT_CONNECTED, Answer, Exchange, Outgoing


@dataclass(frozen=True)
class WholeRequest:
    """A signed request that is small enough to keep in memory."""

    key: str
    data: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        return self.data


@dataclass
class Members:
    """The members of one generation, their Flower nodes, and the coordinator's identity.

    `heads` holds the highest head of each hospital's audit log that was seen.
    """

    grid: Grid
    exchange: Exchange
    roster: Roster
    coordinator: Identity = field(repr=False)
    names: tuple[HospitalName, ...] = ()  # in roster order; all members unless given
    nodes: dict[Position, NodeId] = field(default_factory=dict)
    heads: dict[HospitalName, AuditHead] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = self.names or tuple(map(HospitalName, self.roster.names))

    def of(self, roster: Roster, names: tuple[HospitalName, ...] = ()) -> "Members":
        """Return the members of another generation."""
        return Members(
            self.grid, self.exchange, roster, self.coordinator, names=names, heads=self.heads
        )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def positions(self) -> list[Position]:
        return [Position(number) for number in range(len(self.names))]

    def present(self) -> set[Position]:
        """Return the hospitals that are connected."""
        registered = self.registered()
        if registered:
            self.nodes |= registered
            return set(registered)
        ids = set(self.grid.get_node_ids())
        return {position for position, node in self.nodes.items() if node in ids}

    def absent(self) -> list[HospitalName]:
        """Return the names of the hospitals that are not connected."""
        present = self.present()
        return [name for position, name in self._by_position() if position not in present]

    def registered(self) -> dict[Position, NodeId]:
        """Return the connected members' nodes, where nodes are registered by name."""
        nodes = {node.name: NodeId(node.node_id) for node in self.grid.get_nodes() if node.name}
        return {position: nodes[name] for position, name in self._by_position() if name in nodes}

    def sign(self, request: Request, hospital: str) -> bytes:
        """Address a request to a hospital, and sign it."""
        study = self.roster.study
        return sign_request(request, self.coordinator, study=study, hospital=hospital)

    def read(self, hospital: str, request: bytes, data: bytes) -> Reply:
        """Return a hospital's reply to the request of this digest, if the hospital signed it.

        Otherwise raise a MessageError: whoever carries messages may have made it up.
        """
        identity = self.roster.identity_of(hospital) or b""
        study = self.roster.study
        if not is_reply_by(identity, data, study=study, hospital=hospital, request=request):
            raise MessageError(f"the agent of {hospital} has not signed it as its answer")
        return decode_signed_reply(data)

    def ask(
        self,
        requests: Mapping[HospitalName, Outgoing],
        *,
        timeout: float,
        group: str,
        enough: Callable[[], bool] = lambda: True,
        on_unanswered: Callable[[list[HospitalName], float], None] = lambda names, seconds: None,
    ) -> Iterator[tuple[HospitalName, Answer]]:
        """Send hospitals their signed requests; yield each hospital's answer as it arrives."""
        node_of = {
            name: self.nodes[position]
            for position, name in self._by_position()
            if name in requests and position in self.nodes
        }
        for name in requests:
            if name not in node_of:
                yield name, NOT_CONNECTED
        name_of = {node: name for name, node in node_of.items()}
        for node, answer in self.exchange.send(
            {node_of[name]: request for name, request in requests.items() if name in node_of},
            read=lambda node, request, data: self.read(name_of[node], request, data),
            timeout=timeout,
            group=group,
            enough=enough,
            on_unanswered=lambda nodes, seconds: on_unanswered(
                [name_of[node] for node in nodes], seconds
            ),
        ):
            name = name_of[node]
            self._note_head(name, answer)
            yield name, answer

    def ask_each(
        self, requests: Mapping[HospitalName, Outgoing], *, timeout: float, group: str
    ) -> dict[HospitalName, Answer]:
        """Send hospitals their requests; return all answers, in roster order."""
        answers = dict(self.ask(requests, timeout=timeout, group=group))
        return {name: answers[name] for name in self.names if name in requests}

    def ask_all(
        self, request: Request, *, timeout: float, names: Sequence[HospitalName] = ()
    ) -> dict[HospitalName, Answer]:
        """Send everyone, or `names`, the same request; return all answers, in roster order."""
        requests = {
            name: WholeRequest(request.kind, self.sign(request, name))
            for name in names or self.names
        }
        return self.ask_each(requests, timeout=timeout, group=request.kind)

    def with_reasons(self, missing: Mapping[Position, str]) -> str:
        """List missing hospitals, each with the reason."""
        return ", ".join(f"{self.names[h]} ({why})" for h, why in sorted(missing.items()))

    def _by_position(self) -> Iterator[tuple[Position, HospitalName]]:
        yield from zip(self.positions, self.names, strict=True)

    def _note_head(self, name: HospitalName, answer: Answer) -> None:
        """Remember a later audit head, if the hospital signed it."""
        head = answer.reply.audit if answer.reply is not None else None
        known = self.heads.get(name)
        if (
            head is not None
            and (known is None or head.sequence > known.sequence)
            and head.is_by(self.roster.identity_of(name) or b"")
        ):
            self.heads[name] = head
