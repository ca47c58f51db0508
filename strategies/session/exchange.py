"""Requests on their way over Flower's Grid, and the hospitals' replies or the reasons for none."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from protocol.messages import MessageError, Refusal, Reply, decode_reply
from protocol.records import from_records, to_records

from .reply_notifier import ReplyNotifier

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
# A message lives a little longer than anyone waits for its answer, and no longer.
_GRACE = 60.0
# However well a bell tells who has answered: errors are Flower's own, and ring none. A few are
# looked at in turn: each look costs a call, and waits for a reply that is on its way to be whole.
_LOOK_SECONDS, _LOOKED_AT = 2.5, 4
# Who left its last request unanswered is waited for twice as long as the slowest of the others
# took, but at least this many seconds: back after a restart it keeps up, hung it holds nobody up.
_OVERDUE_SECONDS = 5.0
# A request is sent again if its last copy is older than this, up to so many copies at once.
_AGAIN_SECONDS, _COPIES = 5.0, 3


@dataclass(frozen=True)
class Answer:
    """A hospital's answer: a reply, or why there is none. Times are the coordinator's own."""

    reply: Reply | None
    problem: str
    seconds: float
    bytes_down: int
    bytes_up: int


Produce = Callable[[], bytes]  # a request's bytes, made only to be sent: together they are too many
Intake = Callable[[int, Answer], Answer]


@dataclass(frozen=True)
class _Sent:
    message: str  # Flower's id
    key: str
    at: float
    expires: float
    size: int


class Exchange:
    """All that was asked and not yet answered, over many legs.

    A hospital that is asked for the same thing again may answer either message: the first may still
    be on its way, or have gone down with the hospital's SuperNode.

    `batch` is how many replies are pulled at a time: each may be as large as a model.
    """

    def __init__(self, grid: Grid, *, bell: ReplyNotifier | None = None, batch: int = 1) -> None:
        self._grid = grid
        self._bell = bell or ReplyNotifier()
        self._batch = batch
        self._open: dict[int, list[_Sent]] = {}
        self._overdue: set[int] = set()
        self._looked_at: dict[int, float] = {}

    def send(
        self,
        requests: Mapping[int, tuple[str, Produce]],
        *,
        timeout: float,
        group: str,
        intake: Intake = lambda node, answer: answer,
        enough: Callable[[], bool] = lambda: True,
    ) -> dict[int, Answer]:
        """Send nodes their requests (a name for the bytes, and the bytes) and await the answers.

        Waits at most `timeout` seconds, and for those whose last request is overdue no longer than
        is polite, if without them there is `enough`. `intake` sees each answer as it arrives and
        returns what is kept of it.
        """
        started = time.monotonic()
        answers: dict[int, Answer] = {}
        self._open = {node: self._alive(node, key) for node, (key, _) in requests.items()}
        for node, (key, produce) in requests.items():
            self._push(node, key, produce, timeout=timeout, group=group)
            if not self._open[node]:
                answers[node] = intake(node, Answer(None, "not connected", 0.0, 0, 0))
        pause, looked, quiet_since = _FIRST_PAUSE, started, started
        ready: frozenset[int] | None = frozenset() if self._bell.available else None
        while waiting := [node for node in requests if node not in answers]:
            now = time.monotonic()
            polite = max(_OVERDUE_SECONDS, 2 * (quiet_since - started))
            is_over = self._overdue.issuperset(waiting) and now - started >= polite and enough()
            if is_over or now - started >= timeout:
                for node in waiting:
                    waited, size = min(now - started, timeout), self._open[node][-1].size
                    problem = f"no answer in {waited:.3g} s"
                    answers[node] = intake(node, Answer(None, problem, waited, size, 0))
                    self._overdue.add(node)
                break
            if ready is not None and now - looked >= _LOOK_SECONDS:
                ready, looked = ready | self._in_turn(waiting), now
            arrived = False
            for node, answer in self._arrivals(waiting, ready, started):
                answers[node] = intake(node, answer)
                self._overdue.discard(node)
                arrived = True
            if arrived:
                pause, quiet_since = _FIRST_PAUSE, time.monotonic()
            if not arrived or self._bell.available:
                ready = self._bell.wait(pause)
                pause = min(1.5 * pause, _LONGEST_PAUSE)
        return {node: answers[node] for node in requests}

    def _in_turn(self, nodes: Iterable[int]) -> frozenset[int]:
        """Return the few that were looked at longest ago."""
        chosen = sorted(nodes, key=lambda node: self._looked_at.get(node, 0.0))[:_LOOKED_AT]
        self._looked_at |= dict.fromkeys(chosen, time.monotonic())
        return frozenset(chosen)

    def _alive(self, node: int, key: str) -> list[_Sent]:
        """Return the messages with the same request whose answer may still come."""
        now = time.monotonic()
        return [sent for sent in self._open.get(node, []) if sent.key == key and now < sent.expires]

    def _push(self, node: int, key: str, produce: Produce, *, timeout: float, group: str) -> None:
        now, copies = time.monotonic(), self._open[node]
        if copies and (now - copies[-1].at < _AGAIN_SECONDS or len(copies) >= _COPIES):
            return
        data = produce()
        life = timeout + _GRACE
        message = Message(to_records(data), node, MessageType.TRAIN, group_id=group, ttl=life)
        # One at a time: of several, Flower silently leaves out those it can't deliver, and
        # together they may be larger than memory.
        ids = list(self._grid.push_messages([message]))
        if ids and ids[0]:  # a SuperLink gives an undeliverable message an empty id
            copies.append(_Sent(ids[0], key, now, now + life, len(data)))
            self._bell.message_sent(node)

    def _arrivals(
        self, nodes: Iterable[int], ready: frozenset[int] | None, started: float
    ) -> Iterator[tuple[int, Answer]]:
        """Pull what has come in; an error counts only when no copy of the request is left."""
        asked = {
            sent.message: (node, sent)
            for node in nodes
            if ready is None or node in ready
            for sent in self._open[node]
        }
        ids = list(asked)
        for start in range(0, len(ids), self._batch):
            for message in self._grid.pull_messages(ids[start : start + self._batch]):
                # The sender is who was asked: Flower gives another id when a SuperNode was killed.
                node, sent = asked.get(message.metadata.reply_to_message_id, (0, None))
                if sent is None or sent not in self._open[node]:
                    continue
                self._open[node].remove(sent)
                answer = _read(message, time.monotonic() - started, sent.size)
                if answer.reply is not None or not self._open[node]:
                    self._open[node] = []
                    yield node, answer


def _read(message: Message, seconds: float, bytes_down: int) -> Answer:
    if message.has_error():
        return Answer(None, f"Flower error {message.error.code}", seconds, bytes_down, 0)
    try:
        data = from_records(message.content)
        reply = decode_reply(data)
    except MessageError as error:
        return Answer(None, f"unreadable reply: {error}", seconds, bytes_down, 0)
    problem = f"refused: {reply.code}" if isinstance(reply, Refusal) else ""
    return Answer(reply, problem, seconds, bytes_down, len(data))
