"""The hospitals of an experiment, as the coordinator deals with them: by name, over signatures."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.serverapp import Grid

from protocol.audit import AuditHead
from protocol.keys import Identity
from protocol.messages import Hello, Introduction, Request, sign_request
from protocol.roster import Roster

from .exchange import Answer, exchange

_POLL = 0.2


class ExperimentFailed(RuntimeError):
    """The experiment can't go on; the message says why and which hospitals are concerned."""


class QuorumNotReached(ExperimentFailed):
    """Too few hospitals answered."""


@dataclass(frozen=True)
class Members:
    """The roster, the Flower node of each member, and the coordinator's identity.

    `heads` holds the highest head of each hospital's audit trail that was seen.
    """

    roster: Roster
    nodes: tuple[int, ...]
    coordinator: Identity = field(repr=False)
    heads: dict[str, AuditHead] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return self.roster.names

    def __len__(self) -> int:
        return len(self.nodes)

    def present(self, grid: Grid) -> set[int]:
        """Return the positions of the hospitals that are connected."""
        connected = set(grid.get_node_ids())
        return {position for position, node in enumerate(self.nodes) if node in connected}

    def sign(self, request: Request) -> bytes:
        return sign_request(request, self.coordinator)

    def ask(
        self, grid: Grid, requests: Mapping[str, bytes], *, timeout: float, group: str
    ) -> dict[str, Answer]:
        """Send hospitals their signed requests; return the answers by name, in roster order."""
        node_of = dict(zip(self.names, self.nodes, strict=True))
        answers = exchange(
            grid,
            {node_of[name]: data for name, data in requests.items()},
            timeout=timeout,
            group=group,
        )
        result = {name: answers[node_of[name]] for name in self.names if name in requests}
        for name, answer in result.items():
            self._note_head(name, answer)
        return result

    def ask_all(self, grid: Grid, request: Request, *, timeout: float) -> dict[str, Answer]:
        """Send everyone the same request."""
        requests = dict.fromkeys(self.names, self.sign(request))
        return self.ask(grid, requests, timeout=timeout, group=request.kind)

    def _note_head(self, name: str, answer: Answer) -> None:
        """Remember a later head. One that the hospital did not sign is worth nothing."""
        head = answer.reply.audit if answer.reply is not None else None
        known = self.heads.get(name)
        if head is None or (known is not None and head.sequence <= known.sequence):
            return
        if head.is_by(self.roster.identity_of(name) or b""):
            self.heads[name] = head


def meet(
    grid: Grid, roster: Roster, coordinator: Identity, *, patience: float, timeout: float
) -> Members:
    """Wait until every member of the roster is connected, and learn which node is whose."""
    nodes = _wait(grid, len(roster.members), patience)
    hello = sign_request(Hello(), coordinator)
    answers = exchange(grid, dict.fromkeys(nodes, hello), timeout=timeout, group="hello")
    found: dict[str, int] = {}
    for node, answer in answers.items():
        if not isinstance(answer.reply, Introduction):
            raise ExperimentFailed(f"node {node} did not introduce itself: {answer.problem}")
        name = answer.reply.hospital
        if name in found:
            raise ExperimentFailed(f"two nodes call themselves {name}")
        if roster.identity_of(name) is None:
            raise ExperimentFailed(f"node {node} calls itself {name}, which is not on the roster")
        found[name] = node
    return Members(roster, tuple(found[name] for name in roster.names), coordinator)


def _wait(grid: Grid, wanted: int, patience: float) -> list[int]:
    deadline = time.monotonic() + patience
    while len(nodes := sorted(grid.get_node_ids())) < wanted:
        if time.monotonic() > deadline:
            raise QuorumNotReached(
                f"only {len(nodes)} of {wanted} hospitals are connected after {patience:g} s"
            )
        time.sleep(_POLL)
    if len(nodes) > wanted:
        raise ExperimentFailed(
            f"{len(nodes)} hospitals are connected, but the study has {wanted}: "
            "set hospitals to the number of SuperNodes"
        )
    return nodes
