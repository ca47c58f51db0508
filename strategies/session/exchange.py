"""Sends requests over Flower's Grid and yields each hospital's reply, or the reason for none."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from logging import INFO
from typing import Protocol

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from operation.clock import Clock
from operation.flower.logger import log
from protocol.messages import MessageError, Refusal, Reply
from protocol.records import from_records, to_records
from strategies.identifiers import NodeId

from .reply_notifier import ReplyNotifier

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
# A message lives a little longer than its answer is awaited, and no longer.
_GRACE_SECONDS = 60.0
# A notifier does not see Flower's own errors, so a few nodes are looked at in turn all the same:
# each look costs a call, and waits for a reply that is still being uploaded.
_LOOK_SECONDS, _LOOKED_AT = 2.5, 4
# A node that left its last request unanswered gets a shorter grace period: twice what the slowest
# of the others took, but at least this. Back after a restart it keeps up; hung it delays nobody.
_OVERDUE_SECONDS = 5.0
# A request is sent again if its last copy is older than this, up to so many copies at once.
_AGAIN_SECONDS, _COPIES = 5.0, 3
# Flower delivers a message at most once: it is lost with a SuperNode that is restarted, a courier
# that fails, or a response that times out. A node fetches its next message only when it is done
# with the last one. So one that asks for messages this often since a request was sent, and has not
# answered, has lost it. (The first time it may have fetched the request.)
_POLLS_OF_A_LOSS = 2
# Nodes that have not answered are reported after this time, and then again at longer intervals.
_REPORT_SECONDS, _REPORT_AGAIN_SECONDS = 60.0, 300.0
# Flower's codes for a courier that raised an exception, and for a node that is gone.
_FLOWER_ERRORS = {2: "no answer from its agent: ", 5: "its SuperNode disconnected: "}


@dataclass(frozen=True)
class Answer:
    """A hospital's reply, or why there is none. Times are measured at the coordinator."""

    reply: Reply | None
    problem: str
    seconds: float
    bytes_down: int
    bytes_up: int


# Returns the reply in a message of a node's, if the hospital signed it as its answer to the request
# of this digest; else raises a MessageError.
ReadReply = Callable[[NodeId, bytes, bytes], Reply]

NOT_CONNECTED = Answer(None, "not connected", 0.0, 0, 0)


class Outgoing(Protocol):
    """A request to send. Its bytes are made only then: all at once may not fit into memory."""

    @property
    def key(self) -> str:
        """Identify the bytes: two requests with the same key are the same."""

    def to_bytes(self) -> bytes:
        """Return the bytes to send."""


@dataclass(frozen=True)
class _Sent:
    message: str  # Flower's id
    key: str
    digest: bytes = field(repr=False)
    at: float
    expires: float
    size: int


class Exchange:
    """All requests that were sent and not yet answered, over many legs.

    A hospital that is asked for the same thing again may answer either message: the first may still
    be on its way, or have gone down with the hospital's SuperNode.

    `batch` is how many replies are pulled at a time: each may be as large as a model.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        notifier: ReplyNotifier | None = None,
        batch: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self._grid = grid
        self._clock = clock or Clock()
        self._notifier = notifier or ReplyNotifier(self._clock)
        self._batch = batch
        self._open: dict[NodeId, list[_Sent]] = {}
        self._overdue: set[NodeId] = set()
        self._looked_at: dict[NodeId, float] = {}

    def send(
        self,
        requests: Mapping[NodeId, Outgoing],
        *,
        read: ReadReply,
        timeout: float,
        group: str,
        enough: Callable[[], bool] = lambda: True,
        on_unanswered: Callable[[list[NodeId], float], None] = lambda nodes, seconds: None,
    ) -> Iterator[tuple[NodeId, Answer]]:
        """Send every node its request; yield each node's answer, as `read` reads it, on arrival.

        Waits at most `timeout` seconds, and sends a request again that was lost. Nodes whose last
        request is overdue get only a grace period if, without them, there are `enough` answers.
        `on_unanswered` receives the nodes that have not answered after a minute, and then every few
        minutes.
        """
        started, polls = self._clock.now(), Counter[NodeId]()
        self._open = {node: self._alive(node, request) for node, request in requests.items()}
        # Who asked for messages before these were sent has not lost them.
        ready = self._notifier.wait(0.0) if self._notifier.available else None
        waiting = list(requests)
        for node, request in requests.items():
            self._push(node, request, timeout=timeout, group=group)
            if not self._open[node]:
                waiting.remove(node)
                yield node, NOT_CONNECTED
        pause, looked, last_arrival = _FIRST_PAUSE, started, started
        report = started + _REPORT_SECONDS
        while waiting:
            now = self._clock.now()
            grace = max(_OVERDUE_SECONDS, 2 * (last_arrival - started))
            is_over = self._overdue.issuperset(waiting) and now - started >= grace and enough()
            if is_over or now - started >= timeout:
                yield from self._give_up(waiting, min(now - started, timeout))
                return
            if now >= report:
                on_unanswered(list(waiting), now - started)
                report = now + _REPORT_AGAIN_SECONDS
            if ready is not None and now - looked >= _LOOK_SECONDS:
                ready, looked = ready | self._in_turn(waiting), now
            arrived = False
            for node, answer in self._arrivals(list(waiting), ready, started, read):
                waiting.remove(node)
                self._overdue.discard(node)
                arrived = True
                yield node, answer
            if arrived:
                pause, last_arrival = _FIRST_PAUSE, self._clock.now()
            for node in waiting:
                if polls[node] >= _POLLS_OF_A_LOSS and self._push(
                    node, requests[node], timeout=timeout, group=group
                ):
                    log(INFO, "%s: node %d has lost its request, which is sent again", group, node)
                    polls[node] = 0
            if not arrived or self._notifier.available:
                ready = self._notifier.wait(pause)
                polls.update(NodeId(node) for node in ready or ())
                pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _give_up(self, nodes: Iterable[NodeId], waited: float) -> Iterator[tuple[NodeId, Answer]]:
        for node in nodes:
            self._overdue.add(node)
            size = self._open[node][-1].size
            yield node, Answer(None, f"no answer in {waited:.3g} s", waited, size, 0)

    def _in_turn(self, nodes: Iterable[NodeId]) -> frozenset[int]:
        """Return the few nodes that were looked at longest ago."""
        chosen = sorted(nodes, key=lambda node: self._looked_at.get(node, 0.0))[:_LOOKED_AT]
        self._looked_at |= dict.fromkeys(chosen, self._clock.now())
        return frozenset(chosen)

    def _alive(self, node: NodeId, request: Outgoing) -> list[_Sent]:
        """Return the messages with the same request whose answer may still come."""
        now, key = self._clock.now(), request.key
        return [sent for sent in self._open.get(node, []) if sent.key == key and now < sent.expires]

    def _push(self, node: NodeId, request: Outgoing, *, timeout: float, group: str) -> bool:
        """Send a request, unless a copy was sent just now or there are enough of them."""
        now, copies = self._clock.now(), self._open[node]
        if copies and (now - copies[-1].at < _AGAIN_SECONDS or len(copies) >= _COPIES):
            return False
        data = request.to_bytes()
        life = timeout + _GRACE_SECONDS
        message = Message(to_records(data), node, MessageType.TRAIN, group_id=group, ttl=life)
        # One at a time: of several, Flower silently leaves out those it can't deliver, and
        # together they may be larger than memory.
        ids = list(self._grid.push_messages([message]))
        if not ids or not ids[0]:  # a SuperLink gives an undeliverable message an empty id
            return False
        digest = hashlib.sha256(data).digest()
        copies.append(_Sent(ids[0], request.key, digest, now, now + life, len(data)))
        self._notifier.message_sent(node)
        return True

    def _arrivals(
        self,
        nodes: Iterable[NodeId],
        ready: frozenset[int] | None,
        started: float,
        read: ReadReply,
    ) -> Iterator[tuple[NodeId, Answer]]:
        """Pull what has arrived; an error counts only when no copy of the request is left."""
        asked = {
            sent.message: (node, sent)
            for node in nodes
            if ready is None or node in ready
            for sent in self._open[node]
        }
        ids = list(asked)
        for start in range(0, len(ids), self._batch):
            for message in self._grid.pull_messages(ids[start : start + self._batch]):
                # Identify the sender by the request: for a killed SuperNode Flower names another.
                found = asked.get(message.metadata.reply_to_message_id)
                if found is None or found[1] not in self._open[found[0]]:
                    continue
                node, sent = found
                self._open[node].remove(sent)
                answer = _answer(message, node, sent, self._clock.now() - started, read)
                if answer.reply is not None or not self._open[node]:
                    self._open[node] = []
                    yield node, answer


def _answer(message: Message, node: NodeId, sent: _Sent, seconds: float, read: ReadReply) -> Answer:
    if message.has_error():
        code = message.error.code
        problem = f"{_FLOWER_ERRORS.get(code, '')}Flower error {code}"
        return Answer(None, problem, seconds, sent.size, 0)
    try:
        data = from_records(message.content)
        reply = read(node, sent.digest, data)
    except MessageError as error:
        return Answer(None, f"unusable reply: {error}", seconds, sent.size, 0)
    problem = f"refused: {reply.code}" if isinstance(reply, Refusal) else ""
    return Answer(reply, problem, seconds, sent.size, len(data))
