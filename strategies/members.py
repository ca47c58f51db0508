"""The hospitals of an experiment: meeting them, having them agree, delivering the final model."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.serverapp import Grid

from protocol.descriptor import Descriptor
from protocol.messages import Announcement, Close, Hello, Introduction, Request, SetUp
from protocol.model_bytes import ModelState

from .exchange import Answer, exchange

_POLL = 0.2


class ExperimentFailed(RuntimeError):
    """The experiment can't go on; the message says why and which hospitals are concerned."""


class QuorumNotReached(ExperimentFailed):
    """Too few hospitals answered."""


@dataclass(frozen=True)
class Members:
    """The roster as the coordinator uses it: names sorted, and the Flower node of each."""

    names: tuple[str, ...]
    nodes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)

    def present(self, grid: Grid) -> set[int]:
        """Return the positions of the hospitals that are connected."""
        connected = set(grid.get_node_ids())
        return {position for position, node in enumerate(self.nodes) if node in connected}

    def ask_all(self, grid: Grid, request: Request, *, timeout: float) -> dict[str, Answer]:
        """Send everyone the same request; return the answers by name, in roster order."""
        requests = dict.fromkeys(self.nodes, request)
        answers = exchange(grid, requests, timeout=timeout, group=request.kind)
        return {name: answers[node] for name, node in zip(self.names, self.nodes, strict=True)}


def meet(grid: Grid, *, wanted: int | None, patience: float, timeout: float) -> Members:
    """Wait until `wanted` hospitals are connected (`None`: two or more) and learn their names."""
    nodes = _wait(grid, wanted, patience)
    answers = exchange(grid, {node: Hello() for node in nodes}, timeout=timeout, group="hello")
    names: dict[str, int] = {}
    for node, answer in answers.items():
        if not isinstance(answer.reply, Introduction):
            raise ExperimentFailed(f"node {node} did not introduce itself: {answer.problem}")
        if answer.reply.hospital in names:
            raise ExperimentFailed(f"two nodes call themselves {answer.reply.hospital}")
        names[answer.reply.hospital] = node
    order = tuple(sorted(names))
    return Members(order, tuple(names[name] for name in order))


def agree(
    grid: Grid, members: Members, descriptor: Descriptor, *, timeout: float
) -> dict[str, int]:
    """Have every member agree to the descriptor; return their numbers of examples."""
    request = SetUp(experiment=descriptor.experiment, payload=descriptor.to_bytes())
    examples = {}
    for name, answer in members.ask_all(grid, request, timeout=timeout).items():
        if not isinstance(answer.reply, Announcement):
            raise ExperimentFailed(f"{name} did not agree to the experiment: {answer.problem}")
        examples[name] = answer.reply.examples
    return examples


def deliver(
    grid: Grid, members: Members, experiment: str, model: ModelState, *, timeout: float
) -> Mapping[str, Answer]:
    """Close the experiment; who does not answer has missed only the delivery."""
    request = Close(experiment=experiment, payload=model.to_bytes())
    return members.ask_all(grid, request, timeout=timeout)


def _wait(grid: Grid, wanted: int | None, patience: float) -> list[int]:
    deadline = time.monotonic() + patience
    while len(nodes := sorted(grid.get_node_ids())) < (wanted or 2):
        if time.monotonic() > deadline:
            raise QuorumNotReached(
                f"only {len(nodes)} of {wanted or 2} hospitals are connected after {patience:g} s"
            )
        time.sleep(_POLL)
    if wanted is not None and len(nodes) > wanted:
        raise ExperimentFailed(
            f"{len(nodes)} hospitals are connected, but the study has {wanted}: "
            "set hospitals to the number of SuperNodes"
        )
    return nodes
