"""Long polling: which polls are held, for how long, and what is reported."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node

from server_app.services import long_poll_server
from server_app.services.long_poll import PATH, LongPollGateway, PollReply
from server_app.services.udp_notifier import write_node
from tests import virtual_time

pytestmark = pytest.mark.timing

NODE, HEADERS, BODY = 2**63 + 5, [(b"signature", b"x")], b"request"
NOTHING, MESSAGE = httpx.Response(200), httpx.Response(200, content=b"message")
NOTIFIER = ("127.0.0.1", 4711)


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
    """What the gateway sends as datagrams."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Any]] = []

    def sendto(self, data: bytes, address: Any) -> None:
        self.sent.append((data, address))


@pytest.fixture
def wire() -> Wire:
    return Wire()


def with_gateway(
    superlink: SuperLink, wire: Wire, test: Callable[[LongPollGateway], Awaitable[None]]
) -> None:
    async def run() -> None:
        transport = httpx.MockTransport(superlink)
        async with httpx.AsyncClient(transport=transport, base_url="https://superlink") as client:
            gateway = LongPollGateway(client)
            gateway.connection_made(wire)
            await test(gateway)

    virtual_time.run(asyncio.wait_for(run(), 600))


def notify(gateway: LongPollGateway, node: int = NODE) -> None:
    gateway.datagram_received(write_node(node), NOTIFIER)


async def poll(gateway: LongPollGateway, node: int = NODE) -> "asyncio.Task[PollReply]":
    """Poll, and be held if there is no message."""
    task = asyncio.ensure_future(gateway.pull(node, HEADERS, BODY))
    await asyncio.sleep(0.05)
    return task


def test_a_message_is_passed_on_at_once_with_what_was_asked(wire: Wire) -> None:
    superlink = SuperLink(MESSAGE)

    async def test(gateway: LongPollGateway) -> None:
        answer = await gateway.pull(NODE, HEADERS, BODY)
        assert (answer.status, answer.body) == (200, b"message")

    with_gateway(superlink, wire, test)
    (request,) = superlink.asked
    assert (request.url.path, request.content) == (PATH, BODY)
    assert request.headers["signature"] == "x"


def test_no_message_is_held_back_until_a_notification(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)

    async def test(gateway: LongPollGateway) -> None:
        held = await poll(gateway)
        assert not held.done()
        assert len(superlink.asked) == 1
        notify(gateway, node=1)  # somebody else's
        await asyncio.sleep(0.05)
        assert not held.done()
        superlink.now_has(MESSAGE)
        notify(gateway)
        assert (await asyncio.wait_for(held, 0.5)).body == b"message"

    with_gateway(superlink, wire, test)
    assert len(superlink.asked) == 2


def test_a_notification_while_the_first_request_is_on_its_way_is_not_lost(wire: Wire) -> None:
    superlink = SuperLink(NOTHING, MESSAGE)

    async def test(gateway: LongPollGateway) -> None:
        held = asyncio.ensure_future(gateway.pull(NODE, HEADERS, BODY))
        while not superlink.asked:
            await asyncio.sleep(0)
        notify(gateway)
        assert (await asyncio.wait_for(held, 0.5)).body == b"message"

    with_gateway(superlink, wire, test)


def test_without_notifications_the_superlink_is_asked_every_second(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)

    async def test(gateway: LongPollGateway) -> None:
        held = asyncio.ensure_future(gateway.pull(NODE, HEADERS, BODY))
        await asyncio.sleep(4.5)
        assert len(superlink.asked) == 5
        superlink.now_has(MESSAGE)
        assert (await held).body == b"message"
        assert asyncio.get_running_loop().time() == pytest.approx(5)

    with_gateway(superlink, wire, test)


def test_a_poll_is_released_without_a_message_after_the_hold_time(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)

    async def test(gateway: LongPollGateway) -> None:
        assert (await gateway.pull(NODE, HEADERS, BODY)).has_no_message
        # A SuperNode itself gives up after 30 seconds.
        assert asyncio.get_running_loop().time() == pytest.approx(20)

    with_gateway(superlink, wire, test)


def test_many_polls_cause_at_most_twenty_requests_a_second(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)

    async def test(gateway: LongPollGateway) -> None:
        crowd = [asyncio.ensure_future(gateway.pull(n, HEADERS, BODY)) for n in range(200)]
        await asyncio.gather(*crowd)
        # For each one once when it comes and once when it goes; in between, for all together.
        assert len(superlink.asked) <= 2 * 200 + 20 * 20

    with_gateway(superlink, wire, test)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_is_passed_on_and_nothing_is_held(status: int, wire: Wire) -> None:
    superlink = SuperLink(NOTHING, httpx.Response(status, content=b"no"), MESSAGE)

    async def test(gateway: LongPollGateway) -> None:
        notify(gateway)
        held = await poll(gateway)
        told = list(wire.sent)
        # Somebody with the node's number, but not its key.
        assert (await gateway.pull(NODE, HEADERS, BODY)).status == status
        assert not held.done()
        assert wire.sent == told
        notify(gateway)
        assert (await asyncio.wait_for(held, 0.5)).body == b"message"

    with_gateway(superlink, wire, test)


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")])
def test_a_superlink_that_does_not_answer_is_a_502(error: Exception, wire: Wire) -> None:
    async def test(gateway: LongPollGateway) -> None:
        assert (await gateway.pull(NODE, HEADERS, BODY)).status == 502

    with_gateway(SuperLink(error), wire, test)


def test_a_superlink_that_goes_away_ends_the_wait_with_a_502(wire: Wire) -> None:
    async def test(gateway: LongPollGateway) -> None:
        assert (await gateway.pull(NODE, HEADERS, BODY)).status == 502

    with_gateway(SuperLink(NOTHING, httpx.ConnectError("refused")), wire, test)


def test_a_restarted_supernode_takes_the_place_of_the_one_before(wire: Wire) -> None:
    """Else the message would be given to a connection that nobody reads any more."""
    superlink = SuperLink(NOTHING)

    async def test(gateway: LongPollGateway) -> None:
        dead = await poll(gateway)
        alive = await poll(gateway)
        assert (await asyncio.wait_for(dead, 0.5)).has_no_message
        asked = len(superlink.asked)
        superlink.now_has(MESSAGE)
        notify(gateway)
        assert (await asyncio.wait_for(alive, 0.5)).body == b"message"
        assert len(superlink.asked) == asked + 1

    with_gateway(superlink, wire, test)


def test_the_last_notifier_is_told_of_every_poll(wire: Wire) -> None:
    async def test(gateway: LongPollGateway) -> None:
        await gateway.pull(NODE, HEADERS, BODY)
        assert wire.sent == []  # nobody has asked to know
        notify(gateway)
        await gateway.pull(NODE, HEADERS, BODY)
        await gateway.pull(1, HEADERS, BODY)
        assert wire.sent == [(write_node(NODE), NOTIFIER)]

    with_gateway(SuperLink(MESSAGE), wire, test)


def test_a_gateway_that_closes_releases_all_polls(wire: Wire) -> None:
    async def test(gateway: LongPollGateway) -> None:
        held = [await poll(gateway, node) for node in (1, 2, 3)]
        gateway.close()
        answers = await asyncio.wait_for(asyncio.gather(*held), 0.5)
        assert all(answer.has_no_message for answer in answers)
        assert (await asyncio.wait_for(gateway.pull(4, HEADERS, BODY), 0.5)).has_no_message

    with_gateway(SuperLink(NOTHING), wire, test)


def test_datagrams_that_are_no_notifications_are_ignored(wire: Wire) -> None:
    async def test(gateway: LongPollGateway) -> None:
        held = await poll(gateway)
        for data in (b"", b"x", write_node(NODE) + b"x"):
            gateway.datagram_received(data, NOTIFIER)
        await asyncio.sleep(0.05)
        assert not held.done()
        held.cancel()

    with_gateway(SuperLink(NOTHING), wire, test)


def test_nothing_more_is_asked_after_a_disconnect(wire: Wire) -> None:
    superlink = SuperLink(NOTHING)
    request = PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()
    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    async def test(gateway: LongPollGateway) -> None:
        events = asyncio.Queue[dict[str, Any]]()
        events.put_nowait({"type": "http.request", "body": request})
        scope = {"method": "POST", "path": PATH, "headers": HEADERS}
        connection = asyncio.ensure_future(
            long_poll_server._PollEndpoint(gateway)(scope, events.get, send)
        )
        await asyncio.sleep(0.5)
        assert len(superlink.asked) == 1
        events.put_nowait({"type": "http.disconnect"})
        await connection
        notify(gateway)
        await asyncio.sleep(60)

    with_gateway(superlink, wire, test)
    assert len(superlink.asked) == 1
    assert sent == []
