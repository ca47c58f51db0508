"""An exchange where a bell tells who has come back."""

from collections.abc import Iterable

import pytest
from flwr.app import Context, Message

from lab.flower.in_process import InProcessGrid
from protocol.messages import Hello, Introduction, encode
from protocol.records import to_records
from strategies.session import exchange as module
from strategies.session.exchange import Answer, Exchange
from strategies.session.reply_notifier import ReplyNotifier

NODES = range(100, 112)


class Clock:
    """Time that passes only where somebody waits."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class ScriptedNotifier(ReplyNotifier):
    """Tells of nodes at given times."""

    available = True

    def __init__(self, clock: Clock, back: dict[int, float]) -> None:
        self._clock, self._back = clock, dict(back)
        self.rung: list[int] = []

    def message_sent(self, node: int) -> None:
        self.rung.append(node)

    def wait(self, seconds: float) -> frozenset[int]:
        self._clock.now += seconds
        heard = frozenset(n for n, at in self._back.items() if at <= self._clock.now)
        self._back = {n: at for n, at in self._back.items() if n not in heard}
        return heard


class Grid(InProcessGrid):
    """Everybody answers at once; notes who is looked at, and when."""

    def __init__(self, clock: Clock) -> None:
        def introduce(message: Message, _: Context) -> Message:
            reply = Introduction(hospital=f"of {message.metadata.dst_node_id}")
            return Message(to_records(encode(reply)), reply_to=message)

        super().__init__(introduce, len(NODES), {})  # type: ignore[arg-type]
        self._clock = clock
        self._asked: dict[str, int] = {}
        self.looks: list[tuple[float, list[int]]] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        ids = list(super().push_messages(sent))
        self._asked |= {i: m.metadata.dst_node_id for i, m in zip(ids, sent, strict=True)}
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ids = list(message_ids)
        self.looks.append((self._clock.now, [self._asked[i] for i in ids]))
        return super().pull_messages(ids)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def send(grid: Grid, bell: ReplyNotifier, nodes: Iterable[int] = NODES) -> dict[int, Answer]:
    requests = {node: ("hello", lambda: encode(Hello())) for node in nodes}
    return Exchange(grid, bell=bell).send(requests, timeout=60, group="hello")


def test_each_node_is_rung_for_and_its_reply_fetched_when_it_is_back(clock: Clock) -> None:
    bell = ScriptedNotifier(clock, {100: 1.0, 101: 0.5})
    grid = Grid(clock)
    answers = send(grid, bell, (100, 101))
    assert bell.rung == [100, 101]
    # One at a time: each may be as large as a model.
    assert [nodes for _, nodes in grid.looks] == [[101], [100]]
    assert [round(answers[node].seconds, 1) for node in (100, 101)] == [
        pytest.approx(1.0, abs=0.2),
        pytest.approx(0.5, abs=0.2),
    ]


def test_who_never_rings_is_looked_at_in_turn_and_few_at_a_time(clock: Clock) -> None:
    grid = Grid(clock)
    answers = send(grid, ScriptedNotifier(clock, {}))
    assert all(answer.reply is not None for answer in answers.values())
    looked_at: dict[float, list[int]] = {}
    for time, nodes in grid.looks:
        looked_at.setdefault(time, []).extend(nodes)
    assert [len(nodes) for nodes in looked_at.values()] == [4, 4, 4]
    assert sorted(node for nodes in looked_at.values() for node in nodes) == list(NODES)
