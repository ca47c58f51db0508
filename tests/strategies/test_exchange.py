"""One exchange: who answered what, and why the others did not."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict

from lab.flower.in_process import InProcessGrid
from protocol.message_bytes import decode_reply, encode
from protocol.messages import Hello, Introduction, Refusal, RefusalCode, Reply
from protocol.records import from_records, to_records
from strategies.identifiers import NodeId
from strategies.session.exchange import Answer, Exchange
from strategies.session.members import WholeRequest
from tests.fake_clock import FakeClock

Conduct = Callable[[Message], Message | None]


def introduce(message: Message) -> Message:
    reply = Introduction(hospital=f"hospital of node {message.metadata.dst_node_id}")
    return Message(to_records(encode(reply)), reply_to=message)


class StubGrid(InProcessGrid):
    """Three nodes that introduce themselves, but for those told otherwise."""

    def __init__(self, **conduct: Conduct) -> None:
        def app(message: Message, _: Context) -> Message:
            self.received.append(message)
            behave = conduct.get(f"node_{message.metadata.dst_node_id}", introduce)
            return behave(message)  # type: ignore[return-value]

        super().__init__(app, 3, {})  # type: ignore[arg-type]
        self.received: list[Message] = []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [reply for reply in super().pull_messages(message_ids) if reply is not None]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(0.0)


def exchange(
    grid: InProcessGrid,
    requests: dict[int, bytes],
    *,
    timeout: float,
    group: str,
    clock: FakeClock | None = None,
) -> dict[int, Answer]:
    sent = Exchange(grid, clock=clock).send(
        by_key(requests), read=as_it_is, timeout=timeout, group=group
    )
    return dict(sent)


def by_key(requests: dict[int, bytes]) -> dict[NodeId, WholeRequest]:
    return {NodeId(node): WholeRequest(data.hex(), data) for node, data in requests.items()}


def as_it_is(node: int, request: bytes, data: bytes) -> Reply:
    """Read a reply without asking who signed it: that is test_forged_replies.py's."""
    return decode_reply(data)


HELLOS = dict.fromkeys((100, 101, 102), encode(Hello()))


def test_every_node_gets_its_own_request_and_its_answer_is_read() -> None:
    requests = {node: b"request" * node for node in (100, 102)}
    grid = StubGrid()
    answers = exchange(grid, requests, timeout=5, group="leg-1")
    received = {m.metadata.dst_node_id: from_records(m.content) for m in grid.received}
    assert received == requests
    assert {m.metadata.group_id for m in grid.received} == {"leg-1"}
    assert set(answers) == {100, 102}
    for node, answer in answers.items():
        assert answer.reply == Introduction(hospital=f"hospital of node {node}")
        assert answer.problem == ""
        assert answer.bytes_down == len(requests[node])
        assert answer.bytes_up == len(encode(answer.reply))


def test_a_message_lives_longer_than_the_exchange_waits() -> None:
    # Flower would drop an answer that arrives after its message's time to live.
    grid = StubGrid()
    exchange(grid, HELLOS, timeout=500, group="hello")
    assert all(message.metadata.ttl > 500 for message in grid.received)


def test_nothing_to_ask_is_answered_at_once() -> None:
    assert exchange(StubGrid(), {}, timeout=100, group="leg-1") == {}


def test_a_raising_client_app_gives_its_error_code_and_the_others_answer() -> None:
    def raises(message: Message) -> Message:
        raise RuntimeError("patient 4711 is not a number")

    answers = exchange(StubGrid(node_101=raises), HELLOS, timeout=5, group="hello")
    assert (answers[101].reply, answers[101].problem) == (
        None,
        "no answer from its agent: Flower error 2",
    )
    assert answers[100].problem == answers[102].problem == ""


def test_an_error_is_the_asked_nodes_even_if_flower_names_another() -> None:
    def killed(message: Message) -> Message:
        reply = Message(Error(code=5, reason="node is gone"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return reply

    answers = exchange(StubGrid(node_102=killed), HELLOS, timeout=5, group="hello")
    assert set(answers) == {100, 101, 102}
    assert answers[102].problem == "its SuperNode disconnected: Flower error 5"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (RecordDict(), "unusable reply: not a FedDC message"),
        (to_records(b""), "unusable reply: does not begin like a message"),
        (to_records(b"\x80\x04garbage" * 50), "unusable reply: does not begin like a message"),
        (to_records(encode(Refusal(code=RefusalCode.MALFORMED))[:-3]), "unusable reply: header"),
        (to_records(encode(Hello())), "unusable reply: "),  # a request is no reply
    ],
)
def test_what_is_no_reply_is_unreadable(content: RecordDict, problem: str) -> None:
    def garbles(message: Message) -> Message:
        return Message(content, reply_to=message)

    answers = exchange(StubGrid(node_100=garbles), HELLOS, timeout=5, group="hello")
    assert answers[100].reply is None
    assert answers[100].problem.startswith(problem)
    assert answers[101].problem == answers[102].problem == ""


def test_a_refusal_is_a_reply_and_a_problem() -> None:
    def refuses(message: Message) -> Message:
        refusal = Refusal(code=RefusalCode.AGAINST_SCHEDULE)
        return Message(to_records(encode(refusal)), reply_to=message)

    answer = exchange(StubGrid(node_100=refuses), HELLOS, timeout=5, group="hello")[100]
    assert isinstance(answer.reply, Refusal)
    assert answer.problem == "refused: against-schedule"


def test_a_silent_node_is_given_up_after_the_timeout(clock: FakeClock) -> None:
    grid = StubGrid(node_101=lambda _: None)
    answers = exchange(grid, HELLOS, timeout=30, group="hello", clock=clock)
    assert answers[101].reply is None
    assert answers[101].problem == "no answer in 30 s"
    assert answers[101].seconds == 30
    assert answers[101].bytes_down == len(encode(Hello()))
    assert 30 <= clock.now() < 31
    assert answers[100].seconds < 1
    assert answers[102].seconds < 1


def test_an_answer_is_read_soon_after_it_came_not_in_three_seconds(clock: FakeClock) -> None:
    class SlowGrid(StubGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return super().pull_messages(message_ids) if clock.now() > 7.0 else []

    answers = exchange(SlowGrid(), HELLOS, timeout=60, group="hello", clock=clock)
    assert all(answer.problem == "" for answer in answers.values())
    assert all(7.0 < answer.seconds < 7.3 for answer in answers.values())


def test_a_reply_to_something_else_is_ignored(clock: FakeClock) -> None:
    grid = StubGrid(node_102=lambda _: None)
    earlier = [Message(to_records(encode(Hello())), node, "train") for node in (100, 102)]
    for message in earlier:
        message.metadata.__dict__["_message_id"] = "a message of an earlier leg"
    refusal = to_records(encode(Refusal(code=RefusalCode.OLD_LEG)))
    pull = grid.pull_messages

    def pull_more(message_ids: Iterable[str]) -> Iterable[Message]:
        clock.sleep(1)
        late = [Message(refusal, reply_to=message) for message in earlier]
        return [*pull(message_ids), *late]

    grid.pull_messages = pull_more  # type: ignore[method-assign]
    answers = exchange(grid, HELLOS, timeout=10, group="hello", clock=clock)
    problems = {node: answer.problem for node, answer in answers.items()}
    assert problems == {100: "", 101: "", 102: "no answer in 10 s"}


@pytest.mark.parametrize("ids", [[], [""], [None]], ids=["no id", "empty id", "None"])
def test_undeliverable_messages_are_known_at_once(ids: list[Any], clock: FakeClock) -> None:
    # The in-memory grid leaves such a message out, a SuperLink gives it an empty id.
    class PartlyOffline(StubGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            (message,) = messages
            return super().push_messages([message]) if message.metadata.dst_node_id == 101 else ids

    answers = exchange(PartlyOffline(), HELLOS, timeout=600, group="hello", clock=clock)
    assert set(answers) == {100, 101, 102}
    assert answers[101].problem == ""
    for node in (100, 102):
        assert (answers[node].reply, answers[node].problem) == (None, "not connected")
    assert clock.now() < 1


# --- over several legs ----------------------------------------------------------------------------


class HeldBack(StubGrid):
    """Node 101 gets its messages, but its answers stay away until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.pushed: list[tuple[int, bytes]] = []
        self.ids: dict[str, int] = {}
        self.let_go: set[str] = set()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        (message,) = messages
        (identifier,) = super().push_messages([message])
        self.ids[identifier] = message.metadata.dst_node_id
        self.pushed.append((message.metadata.dst_node_id, from_records(message.content)))
        return [identifier]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ready = [i for i in message_ids if self.ids[i] != 101 or i in self.let_go]
        return super().pull_messages(ready)

    def sent_to_101(self) -> list[str]:
        return [identifier for identifier, node in self.ids.items() if node == 101]


def ask(exchange: Exchange, requests: dict[int, bytes], enough: bool = True) -> dict[int, Answer]:
    return dict(
        exchange.send(
            by_key(requests), read=as_it_is, timeout=30, group="leg", enough=lambda: enough
        )
    )


def test_who_left_a_request_unanswered_holds_the_next_legs_up_no_more(clock: FakeClock) -> None:
    grid = HeldBack()
    exchange = Exchange(grid, clock=clock)
    first = ask(exchange, HELLOS)
    assert (first[101].problem, clock.now()) == ("no answer in 30 s", pytest.approx(30, abs=0.3))
    second = ask(exchange, HELLOS)
    assert second[100].problem == second[102].problem == ""
    assert second[101].reply is None
    assert clock.now() < 30 + 5.5


def test_who_is_overdue_is_waited_for_where_there_is_no_quorum_without_it(clock: FakeClock) -> None:
    exchange = Exchange(HeldBack(), clock=clock)
    ask(exchange, HELLOS)
    ask(exchange, HELLOS, enough=False)
    assert clock.now() >= 60


def test_a_late_answer_is_taken_in_a_later_leg_whichever_message_it_answers(
    clock: FakeClock,
) -> None:
    for answered in (0, 1):
        grid = HeldBack()
        exchange = Exchange(grid, clock=clock)
        ask(exchange, HELLOS)
        ask(exchange, HELLOS)
        grid.let_go.add(grid.sent_to_101()[answered])
        third = ask(exchange, HELLOS)
        assert third[101].problem == ""
        # From now on it counts like everybody else.
        grid.let_go.clear()
        before = clock.now()
        ask(exchange, HELLOS)
        assert clock.now() - before >= 30


def test_a_hung_hospital_is_not_sent_ever_more_copies(clock: FakeClock) -> None:
    grid = HeldBack()
    exchange = Exchange(grid, clock=clock)
    for _ in range(12):  # 30 s, then 5 s each: within the first message's life
        ask(exchange, HELLOS)
    assert 2 <= len(grid.sent_to_101()) <= 3


def test_an_answer_to_another_request_is_not_taken_for_this_one(clock: FakeClock) -> None:
    grid = HeldBack()
    exchange = Exchange(grid, clock=clock)
    ask(exchange, HELLOS)
    grid.let_go.update(grid.sent_to_101())
    new = dict.fromkeys((100, 101, 102), b"another request")
    assert ask(exchange, new)[101].reply is None
    assert (101, b"another request") in grid.pushed


def test_an_error_counts_only_when_no_copy_is_left(clock: FakeClock) -> None:
    def killed(message: Message) -> Message:
        return Message(Error(code=5, reason="node is gone"), reply_to=message)

    grid = HeldBack()
    exchange = Exchange(grid, clock=clock)
    ask(exchange, HELLOS)
    pull, waiting = grid.pull_messages, dict(grid._pending)

    def first_copy_fails(message_ids: Iterable[str]) -> Iterable[Message]:
        lost = [waiting.pop(i) for i in list(message_ids) if i in waiting]
        if len(grid.sent_to_101()) == 2:
            grid.let_go.add(grid.sent_to_101()[1])
        return [killed(message) for message in lost] or pull(message_ids)

    grid.pull_messages = first_copy_fails  # type: ignore[method-assign]
    assert ask(exchange, HELLOS)[101].problem == ""


def test_answers_are_yielded_as_they_arrive(clock: FakeClock) -> None:
    """One model at a time is in memory: the next reply is pulled when this one is dealt with."""
    grid = StubGrid()
    pulled: list[int] = []
    pull = grid.pull_messages

    def counted(message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(pull(message_ids))
        pulled.extend(reply.metadata.src_node_id for reply in replies)
        return replies

    grid.pull_messages = counted  # type: ignore[method-assign]
    for number, (node, answer) in enumerate(
        Exchange(grid, clock=clock).send(by_key(HELLOS), read=as_it_is, timeout=5, group="leg"),
        start=1,
    ):
        assert answer.reply is not None
        assert len(pulled) == number, f"more was pulled before node {node}'s answer was used"
    assert len(pulled) == 3


def test_nodes_that_do_not_answer_are_reported_long_before_the_timeout(clock: FakeClock) -> None:
    grid = StubGrid(node_101=lambda message: None)
    reports: list[tuple[list[NodeId], int]] = []

    answers = dict(
        Exchange(grid, clock=clock).send(
            by_key(HELLOS),
            read=as_it_is,
            timeout=600,
            group="leg",
            on_unanswered=lambda nodes, seconds: reports.append((nodes, round(seconds))),
        )
    )

    assert reports == [([101], 60), ([101], 360)]
    assert answers[NodeId(101)].problem == "no answer in 600 s"
