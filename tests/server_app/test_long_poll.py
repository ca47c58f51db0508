"""The waiting room: who is held, for how long, and who is told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node

from server_app.services import long_poll_server
from server_app.services.long_poll import PATH, Answer, WaitingRoom
from server_app.services.udp_notifier import write_node
from tests import virtual_time

pytestmark = pytest.mark.timing

NODE, HEADERS, BODY = 2**63 + 5, [(b"signature", b"x")], b"request"
NOTHING, MESSAGE = httpx.Response(200), httpx.Response(200, content=b"message")
RINGER = ("127.0.0.1", 4711)


class SuperLink:
    """Answers from a list, the last one for ever; counts how often it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content)

    def now_has(self, answer: httpx.Response) -> None:
        self._answers = [answer]


class Wire:
    """What the room sends as datagrams."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Any]] = []

    def sendto(self, data: bytes, address: Any) -> None:
        self.sent.append((data, address))


@pytest.fixture
def wire() -> Wire:
    return Wire()


def in_room(
    superlink: SuperLink, wire: Wire, test: Callable[[WaitingRoom], Awaitable[None]]
) -> None:
    async def run() -> None:
        transport = httpx.MockTransport(superlink)
        async with httpx.AsyncClient(transport=transport, base_url="https://superlink") as client:
            room = WaitingRoom(client)
            room.connection_made(wire)
            await test(room)

    virtual_time.run(asyncio.wait_for(run(), 600))


def ring(room: WaitingRoom, node: int = NODE) -> None:
    room.datagram_received(write_node(node), RINGER)


async def enter(room: WaitingRoom, node: int = NODE) -> "asyncio.Task[Answer]":
    """Come in, and be held if there is nothing."""
    task = asyncio.ensure_future(room.pull(node, HEADERS, BODY))
    await asyncio.sleep(0.05)
    return task


def test_a_message_is_passed_on_at_once_with_what_was_asked(wire: Wire) -> None:
    superlink = SuperLink(MESSAGE)

    async def test(room: WaitingRoom) -> None:
        answer = await room.pull(NODE, HEADERS, BODY)
        assert (answer.status, answer.body) == (200, b"message")

    in_room(superlink, wire, test)
    (request,) = superlink.asked
    assert (request.url.path, request.content) == (PATH, BODY)
    assert request.headers["signature"] == "x"


def test_no_message_is_held_back_until_the_bell_rings(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)

    async def test(room: WaitingRoom) -> None:
        held = await enter(room)
        assert not held.done()
        assert len(superlink.asked) == 1
        ring(room, node=1)  # somebody else's
        await asyncio.sleep(0.05)
        assert not held.done()
        superlink.now_has(MESSAGE)
        ring(room)
        assert (await asyncio.wait_for(held, 0.5)).body == b"message"

    in_room(superlink, wire, test)
    assert len(superlink.asked) == 2


def test_a_ring_while_the_first_question_is_on_its_way_is_not_lost(wire: Wire) -> None:
    superlink = SuperLink(NOTHING, MESSAGE)

    async def test(room: WaitingRoom) -> None:
        held = asyncio.ensure_future(room.pull(NODE, HEADERS, BODY))
        while not superlink.asked:
            await asyncio.sleep(0)
        ring(room)
        assert (await asyncio.wait_for(held, 0.5)).body == b"message"

    in_room(superlink, wire, test)


def test_without_a_bell_the_superlink_is_asked_every_second(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)

    async def test(room: WaitingRoom) -> None:
        held = asyncio.ensure_future(room.pull(NODE, HEADERS, BODY))
        await asyncio.sleep(4.5)
        assert len(superlink.asked) == 5
        superlink.now_has(MESSAGE)
        assert (await held).body == b"message"
        assert asyncio.get_running_loop().time() == pytest.approx(5)

    in_room(superlink, wire, test)


def test_who_has_waited_long_enough_is_told_that_there_is_nothing(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)

    async def test(room: WaitingRoom) -> None:
        assert (await room.pull(NODE, HEADERS, BODY)).says_no_message
        # A SuperNode itself gives up after 30 seconds.
        assert asyncio.get_running_loop().time() == pytest.approx(20)

    in_room(superlink, wire, test)


def test_a_crowd_asks_no_more_than_twenty_times_a_second(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)

    async def test(room: WaitingRoom) -> None:
        crowd = [asyncio.ensure_future(room.pull(n, HEADERS, BODY)) for n in range(200)]
        await asyncio.gather(*crowd)
        # For each one once when it comes and once when it goes; in between, for all together.
        assert len(superlink.asked) <= 2 * 200 + 20 * 20

    in_room(superlink, wire, test)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_is_passed_on_and_lets_nobody_in(status: int, wire: Wire) -> None:
    superlink = SuperLink(NOTHING, httpx.Response(status, content=b"no"), MESSAGE)

    async def test(room: WaitingRoom) -> None:
        ring(room)
        held = await enter(room)
        told = list(wire.sent)
        # Somebody with the node's number, but not its key.
        assert (await room.pull(NODE, HEADERS, BODY)).status == status
        assert not held.done()
        assert wire.sent == told
        ring(room)
        assert (await asyncio.wait_for(held, 0.5)).body == b"message"

    in_room(superlink, wire, test)


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")])
def test_a_superlink_that_does_not_answer_is_a_502(error: Exception, wire: Wire) -> None:
    async def test(room: WaitingRoom) -> None:
        assert (await room.pull(NODE, HEADERS, BODY)).status == 502

    in_room(SuperLink(error), wire, test)


def test_a_superlink_that_goes_away_ends_the_wait_with_a_502(wire: Wire) -> None:
    async def test(room: WaitingRoom) -> None:
        assert (await room.pull(NODE, HEADERS, BODY)).status == 502

    in_room(SuperLink(NOTHING, httpx.ConnectError("refused")), wire, test)


def test_a_restarted_supernode_takes_the_place_of_the_one_before(wire: Wire) -> None:
    """Else the message would be given to a connection that nobody reads any more."""
    superlink = SuperLink(NOTHING)

    async def test(room: WaitingRoom) -> None:
        dead = await enter(room)
        alive = await enter(room)
        assert (await asyncio.wait_for(dead, 0.5)).says_no_message
        asked = len(superlink.asked)
        superlink.now_has(MESSAGE)
        ring(room)
        assert (await asyncio.wait_for(alive, 0.5)).body == b"message"
        assert len(superlink.asked) == asked + 1

    in_room(superlink, wire, test)


def test_who_rang_is_told_whenever_the_node_comes_in(wire: Wire) -> None:
    async def test(room: WaitingRoom) -> None:
        await room.pull(NODE, HEADERS, BODY)
        assert wire.sent == []  # nobody has asked to know
        ring(room)
        await room.pull(NODE, HEADERS, BODY)
        await room.pull(1, HEADERS, BODY)
        assert wire.sent == [(write_node(NODE), RINGER)]

    in_room(SuperLink(MESSAGE), wire, test)


def test_a_room_that_closes_sends_everybody_away(wire: Wire) -> None:
    async def test(room: WaitingRoom) -> None:
        held = [await enter(room, node) for node in (1, 2, 3)]
        room.close()
        answers = await asyncio.wait_for(asyncio.gather(*held), 0.5)
        assert all(answer.says_no_message for answer in answers)
        assert (await asyncio.wait_for(room.pull(4, HEADERS, BODY), 0.5)).says_no_message

    in_room(SuperLink(NOTHING), wire, test)


def test_datagrams_that_are_no_rings_are_ignored(wire: Wire) -> None:
    async def test(room: WaitingRoom) -> None:
        held = await enter(room)
        for data in (b"", b"x", write_node(NODE) + b"x"):
            room.datagram_received(data, RINGER)
        await asyncio.sleep(0.05)
        assert not held.done()
        held.cancel()

    in_room(SuperLink(NOTHING), wire, test)


def test_for_who_hangs_up_nothing_more_is_asked(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)
    request = PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()
    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    async def test(room: WaitingRoom) -> None:
        events = asyncio.Queue[dict[str, Any]]()
        events.put_nowait({"type": "http.request", "body": request})
        scope = {"method": "POST", "path": PATH, "headers": HEADERS}
        connection = asyncio.ensure_future(
            long_poll_server._Reception(room)(scope, events.get, send)
        )
        await asyncio.sleep(0.5)
        assert len(superlink.asked) == 1
        events.put_nowait({"type": "http.disconnect"})
        await connection
        ring(room)
        await asyncio.sleep(60)

    in_room(superlink, wire, test)
    assert len(superlink.asked) == 1
    assert sent == []
