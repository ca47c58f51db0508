"""Waiting for a study's hospitals to connect, and learning which Flower node is whose."""

from logging import WARNING

from flwr.serverapp import Grid

from operation.flower.logger import log
from protocol.message_bytes import decode_signed_reply
from protocol.messages import ANY_HOSPITAL, Hello, Introduction, Reply
from protocol.study.roster import Roster
from strategies.identifiers import HospitalName, NodeId, Position
from strategies.session.exchange import Exchange
from strategies.session.members import Members, WholeRequest
from strategies.session.quorum import ExperimentFailed, QuorumNotReached
from strategies.session.sealed_study import SealedStudy

_POLL_SECONDS = 0.2


def connect_members(
    grid: Grid,
    study: SealedStudy,
    roster: Roster,
    *,
    timeout: float,
    names: tuple[HospitalName, ...] = (),
    everyone: bool = True,
) -> Members:
    """Wait until every member of the roster is connected.

    `names` are the members that take part, if not all do. Without `everyone`, members that are not
    connected after the study's `start_timeout` may come later.
    """
    exchange = Exchange(grid, notifier=study.notifier, batch=study.journal.batch, clock=study.clock)
    members = Members(grid, exchange, roster, study.coordinator, names=names)
    patience, clock = study.start_timeout, study.clock
    deadline = clock.now() + patience
    while len(nodes := sorted(grid.get_node_ids())) < len(members) or (
        members.registered() and members.absent()
    ):
        if clock.now() > deadline:
            if everyone or not members.registered():
                raise QuorumNotReached(_who_is_missing(members, len(nodes), patience))
            log(WARNING, "not connected so far: %s", ", ".join(members.absent()))
            break
        clock.sleep(_POLL_SECONDS)
    if not members.registered():
        members.nodes = _introduced(members, [NodeId(node) for node in nodes], timeout)
    members.present()
    return members


def _who_is_missing(members: Members, connected: int, patience: float) -> str:
    if members.registered():
        return f"not connected after {patience:g} s: {', '.join(members.absent())}"
    return f"only {connected} of {len(members)} hospitals are connected after {patience:g} s"


def _introduced(members: Members, nodes: list[NodeId], timeout: float) -> dict[Position, NodeId]:
    """Ask the nodes for their names: in simulation they are not registered by name."""
    roster = members.roster
    if len(nodes) > len(roster.names):
        raise ExperimentFailed(
            f"{len(nodes)} hospitals are connected, but the study has {len(roster.names)}: "
            "set hospitals to the number of SuperNodes"
        )
    hello = WholeRequest("hello", members.sign(Hello(), ANY_HOSPITAL))
    found: dict[str, NodeId] = {}
    requests = dict.fromkeys(nodes, hello)

    def read(node: NodeId, request: bytes, data: bytes) -> Reply:
        claim = decode_signed_reply(data)
        if not isinstance(claim, Introduction) or roster.identity_of(claim.hospital) is None:
            return claim  # told apart below
        return members.read(claim.hospital, request, data)

    sent = members.exchange.send(requests, read=read, timeout=timeout, group="hello")
    for node, answer in sent:
        if not isinstance(answer.reply, Introduction):
            raise ExperimentFailed(f"node {node} did not introduce itself: {answer.problem}")
        name = answer.reply.hospital
        if name in found:
            raise ExperimentFailed(f"two nodes call themselves {name}")
        if roster.identity_of(name) is None:
            raise ExperimentFailed(f"node {node} calls itself {name}, which is not on the roster")
        found[name] = node
    return {Position(number): found[name] for number, name in enumerate(roster.names)}
