"""An exchange with a notifier that says which nodes may have replied."""

from collections.abc import Iterable

import pytest
from flwr.app import Context, Message

from lab.flower.in_process import InProcessGrid
from protocol.message_bytes import decode_reply, encode
from protocol.messages import Hello, Introduction
from protocol.records import to_records
from strategies.identifiers import NodeId
from strategies.session.exchange import Answer, Exchange
from strategies.session.members import WholeRequest
from strategies.session.reply_notifier import ReplyNotifier
from tests.fake_clock import FakeClock

NODES = range(100, 112)


class ScriptedNotifier(ReplyNotifier):
    """Notifies of nodes at given times, each of them once or more often."""

    available = True

    def __init__(self, clock: FakeClock, back: dict[int, float | list[float]]) -> None:
        times = {n: at if isinstance(at, list) else [at] for n, at in back.items()}
        self._clock, self._back = clock, [(n, at) for n, all in times.items() for at in all]
        self.sent: list[int] = []

    def message_sent(self, node: int) -> None:
        self.sent.append(node)

    def wait(self, seconds: float) -> frozenset[int]:
        self._clock.sleep(seconds)
        heard = [(n, at) for n, at in self._back if at <= self._clock.now()]
        self._back = [known for known in self._back if known not in heard]
        return frozenset(n for n, _ in heard)


class Grid(InProcessGrid):
    """Everybody answers at once; notes who is looked at, and when."""

    def __init__(self, clock: FakeClock) -> None:
        def introduce(message: Message, _: Context) -> Message:
            reply = Introduction(hospital=f"of {message.metadata.dst_node_id}")
            return Message(to_records(encode(reply)), reply_to=message)

        super().__init__(introduce, len(NODES), {})  # type: ignore[arg-type]
        self._clock = clock
        self._asked: dict[str, int] = {}
        self.looks: list[tuple[float, list[int]]] = []
        self.lost = 0  # so many messages never arrive

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        ids = list(super().push_messages(sent))
        self._asked |= {i: m.metadata.dst_node_id for i, m in zip(ids, sent, strict=True)}
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ids = list(message_ids)
        self.looks.append((self._clock.now(), [self._asked[i] for i in ids]))
        return super().pull_messages([i for i in ids if list(self._asked).index(i) >= self.lost])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(0.0)


def send(
    grid: Grid, notifier: ReplyNotifier, clock: FakeClock, nodes: Iterable[int] = NODES
) -> dict[int, Answer]:
    hello = WholeRequest("hello", encode(Hello()))
    requests = dict.fromkeys(map(NodeId, nodes), hello)
    exchange = Exchange(grid, notifier=notifier, clock=clock)
    return dict(
        exchange.send(
            requests, read=lambda node, request, data: decode_reply(data), timeout=60, group="hello"
        )
    )


def test_the_notifier_learns_of_each_message_and_a_reply_is_fetched_when_it_says_so(
    clock: FakeClock,
) -> None:
    notifier = ScriptedNotifier(clock, {100: 1.0, 101: 0.5})
    grid = Grid(clock)
    answers = send(grid, notifier, clock, (100, 101))
    assert notifier.sent == [100, 101]
    # One at a time: each may be as large as a model.
    assert [nodes for _, nodes in grid.looks] == [[101], [100]]
    assert [round(answers[node].seconds, 1) for node in (100, 101)] == [
        pytest.approx(1.0, abs=0.2),
        pytest.approx(0.5, abs=0.2),
    ]


def test_nodes_without_a_notification_are_looked_at_in_turn_a_few_at_a_time(
    clock: FakeClock,
) -> None:
    grid = Grid(clock)
    answers = send(grid, ScriptedNotifier(clock, {}), clock)
    assert all(answer.reply is not None for answer in answers.values())
    looked_at: dict[float, list[int]] = {}
    for time, nodes in grid.looks:
        looked_at.setdefault(time, []).extend(nodes)
    assert [len(nodes) for nodes in looked_at.values()] == [4, 4, 4]
    assert sorted(node for nodes in looked_at.values() for node in nodes) == list(NODES)


def test_a_request_that_its_node_has_lost_is_sent_again(clock: FakeClock) -> None:
    grid = Grid(clock)
    grid.lost = 1
    # It asked for messages when the request was there, and asks again: it has nothing to do.
    notifier = ScriptedNotifier(clock, {100: [1.0, 24.0, 26.0]})
    answers = send(grid, notifier, clock, (100,))
    assert notifier.sent == [100, 100]
    assert isinstance(answers[100].reply, Introduction)
    assert answers[100].seconds == pytest.approx(26, abs=1)


def test_a_node_that_works_on_its_request_is_not_sent_it_again(clock: FakeClock) -> None:
    grid = Grid(clock)
    grid.lost = 1  # it works for longer than anybody waits
    notifier = ScriptedNotifier(clock, {100: [1.0]})
    answers = send(grid, notifier, clock, (100,))
    assert notifier.sent == [100]
    assert answers[100].problem == "no answer in 60 s"


def test_a_node_that_loses_every_copy_gets_a_few(clock: FakeClock) -> None:
    grid = Grid(clock)
    grid.lost = 100
    notifier = ScriptedNotifier(clock, {100: [float(second) for second in range(60)]})
    answers = send(grid, notifier, clock, (100,))
    assert notifier.sent == [100, 100, 100]
    assert answers[100].problem == "no answer in 60 s"
