"""The hospitals of an experiment, as the coordinator deals with them: by name, over signatures."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from logging import WARNING

from flwr.serverapp import Grid

from operation.flower.logger import log
from protocol.audit_head import AuditHead
from protocol.keys import Identity
from protocol.messages import Hello, Introduction, Request, sign_request
from protocol.study.roster import Roster

from .exchange import Answer, Exchange, Produce
from .reply_notifier import ReplyNotifier

_POLL, _PAUSE, _LONGEST_PAUSE = 0.2, 1.0, 15.0


class ExperimentFailed(RuntimeError):
    """The experiment can't go on; the message says why and which hospitals are concerned."""


class QuorumNotReached(ExperimentFailed):
    """Too few hospitals answered."""


class Pause:
    """Waits for hospitals that are missing, up to a limit; then the experiment has failed."""

    def __init__(self, limit: float, tell: Callable[[str], None]) -> None:
        self._limit, self._tell = limit, tell
        self._until: float | None = None
        self._told, self._seconds = "", _PAUSE

    def wait(self, problem: str) -> None:
        """Wait a moment; say what for, whenever that has changed."""
        now = time.monotonic()
        self._until = now + self._limit if self._until is None else self._until
        if now >= self._until:
            waited = f" (waited {self._limit:g} s)" if self._limit else ""
            raise QuorumNotReached(problem + waited)
        if problem != self._told:
            self._told = problem
            self._tell(problem)
        # Asked again and again, a hospital that refuses would fill its audit trail.
        time.sleep(min(self._seconds, self.left))
        self._seconds = min(1.5 * self._seconds, _LONGEST_PAUSE)

    @property
    def left(self) -> float:
        """Return how many seconds this may still take."""
        return self._limit if self._until is None else max(0.0, self._until - time.monotonic())


@dataclass
class Members:
    """The roster, the Flower node of each member that was met, and the coordinator's identity.

    `heads` holds the highest head of each hospital's audit trail that was seen. For `bell` and
    `batch` see `strategies.session.exchange`.
    """

    grid: Grid
    roster: Roster
    coordinator: Identity = field(repr=False)
    names: tuple[str, ...] = ()  # who takes part, in roster order: all, unless said otherwise
    nodes: dict[int, int] = field(default_factory=dict)  # by position in `names`
    heads: dict[str, AuditHead] = field(default_factory=dict)
    bell: ReplyNotifier = field(default_factory=ReplyNotifier)
    batch: int = 1

    def __post_init__(self) -> None:
        self.names = self.names or self.roster.names
        self._exchange = Exchange(self.grid, bell=self.bell, batch=self.batch)

    def of(self, roster: Roster, names: tuple[str, ...] = ()) -> "Members":
        """Return the members of another generation."""
        return Members(
            self.grid,
            roster,
            self.coordinator,
            names=names,
            heads=self.heads,
            bell=self.bell,
            batch=self.batch,
        )

    def __len__(self) -> int:
        return len(self.names)

    def present(self) -> set[int]:
        """Return the positions of the hospitals that are connected."""
        connected = _registered(self.grid, self.names)
        if connected:
            self.nodes |= connected
            return set(connected)
        ids = set(self.grid.get_node_ids())
        return {position for position, node in self.nodes.items() if node in ids}

    def absent(self) -> list[str]:
        """Name the hospitals that are not connected."""
        present = self.present()
        return [name for position, name in enumerate(self.names) if position not in present]

    def sign(self, request: Request) -> bytes:
        return sign_request(request, self.coordinator)

    def ask(
        self,
        requests: Mapping[str, tuple[str, Produce]],
        *,
        timeout: float,
        group: str,
        intake: Callable[[str, Answer], Answer] = lambda name, answer: answer,
        enough: Callable[[], bool] = lambda: True,
    ) -> dict[str, Answer]:
        """Send hospitals their signed requests; return the answers by name, in roster order."""
        positions = {name: position for position, name in enumerate(self.names)}
        node_of = {
            name: self.nodes[positions[name]] for name in requests if positions[name] in self.nodes
        }
        name_of = {node: name for name, node in node_of.items()}
        never_met = {name: _NOT_CONNECTED for name in requests if name not in node_of}
        answers = self._exchange.send(
            {node: requests[name] for name, node in node_of.items()},
            timeout=timeout,
            group=group,
            intake=lambda node, answer: intake(name_of[node], self._noted(name_of[node], answer)),
            enough=enough,
        )
        found = {name_of[node]: answer for node, answer in answers.items()}
        found |= {name: intake(name, answer) for name, answer in never_met.items()}
        return {name: found[name] for name in self.names if name in requests}

    def ask_all(self, request: Request, *, timeout: float) -> dict[str, Answer]:
        """Send everyone the same request."""
        data = self.sign(request)
        requests: dict[str, tuple[str, Produce]] = {
            name: (request.kind, lambda: data) for name in self.names
        }
        return self.ask(requests, timeout=timeout, group=request.kind)

    def _noted(self, name: str, answer: Answer) -> Answer:
        """Remember a later head. One that the hospital did not sign is worth nothing."""
        head = answer.reply.audit if answer.reply is not None else None
        known = self.heads.get(name)
        if (
            head is not None
            and (known is None or head.sequence > known.sequence)
            and head.is_by(self.roster.identity_of(name) or b"")
        ):
            self.heads[name] = head
        return answer


_NOT_CONNECTED = Answer(None, "not connected", 0.0, 0, 0)


def meet(
    grid: Grid,
    roster: Roster,
    coordinator: Identity,
    *,
    patience: float,
    timeout: float,
    names: tuple[str, ...] = (),
    everyone: bool = True,
    bell: ReplyNotifier | None = None,
    batch: int = 1,
) -> Members:
    """Wait until every member of the roster is connected, and learn which node is whose.

    `names` are those who take part, if not all do. Without `everyone` those who have not come after
    `patience` seconds may come later.
    """
    members = Members(
        grid, roster, coordinator, names=names, bell=bell or ReplyNotifier(), batch=batch
    )
    deadline = time.monotonic() + patience
    while len(nodes := sorted(grid.get_node_ids())) < len(members) or (
        _registered(grid, members.names) and members.absent()
    ):
        if time.monotonic() > deadline:
            if everyone or not _registered(grid, members.names):
                raise QuorumNotReached(_who_is_missing(members, len(nodes), patience))
            log(WARNING, "not connected so far: %s", ", ".join(members.absent()))
            break
        time.sleep(_POLL)
    if not _registered(grid, members.names):
        members.nodes = _introduced(grid, roster, coordinator, nodes, timeout)
    members.present()
    return members


def _registered(grid: Grid, names: tuple[str, ...]) -> dict[int, int]:
    """Return the connected members' nodes, by position, where nodes are registered by name."""
    node_of = {node.name: node.node_id for node in grid.get_nodes() if node.name}
    return {p: node_of[name] for p, name in enumerate(names) if name in node_of}


def _who_is_missing(members: Members, connected: int, patience: float) -> str:
    if _registered(members.grid, members.names):
        return f"not connected after {patience:g} s: {', '.join(members.absent())}"
    return f"only {connected} of {len(members)} hospitals are connected after {patience:g} s"


def _introduced(
    grid: Grid, roster: Roster, coordinator: Identity, nodes: list[int], timeout: float
) -> dict[int, int]:
    """Ask the nodes for their names: in simulation nobody has registered them."""
    if len(nodes) > len(roster.names):
        raise ExperimentFailed(
            f"{len(nodes)} hospitals are connected, but the study has {len(roster.names)}: "
            "set hospitals to the number of SuperNodes"
        )
    hello = sign_request(Hello(), coordinator)
    requests: dict[int, tuple[str, Produce]] = {node: ("hello", lambda: hello) for node in nodes}
    answers = Exchange(grid).send(requests, timeout=timeout, group="hello")
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
    return {position: found[name] for position, name in enumerate(roster.names)}
