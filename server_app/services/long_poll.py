"""The waiting room: between the proxy and the SuperLink, for hospitals that ask for messages.

A SuperNode that is told "no message" sleeps for three seconds, whatever comes in meanwhile. Here
that answer is held back: the SuperNode waits in the room until the ServerApp rings for it (see
bell.py), and then the SuperLink is asked again, with the SuperNode's own signed headers. Whoever
comes in has delivered the whole of its last reply before, and that is what the ServerApp is told.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from .udp_notifier import NODE_BYTES, read_node, write_node

logger = logging.getLogger("feddc.waiting-room")

PATH = "/v1/fleet/pull-messages"
HOLD_SECONDS = 20.0  # a SuperNode gives up after 30
# Without a bell (another app's run, a lost datagram) the SuperLink is asked this often, and on
# behalf of all who wait together no more than twenty times a second.
_LOOK_SECONDS, _ASKED_PER_SECOND = 1.0, 20.0
_MOST_WAITING = 2000

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Answer:
    """The SuperLink's answer, to be passed on as it is."""

    status: int
    headers: Headers
    body: bytes

    @property
    def says_no_message(self) -> bool:
        return self.status == 200 and not self.body


class WaitingRoom(asyncio.DatagramProtocol):
    """Who waits, and who wants to know when somebody comes in."""

    def __init__(self, superlink: httpx.AsyncClient) -> None:
        self._superlink = superlink
        self._waiting: dict[int, asyncio.Event] = {}
        self._ringers: dict[int, Any] = {}
        self._rung: Counter[int] = Counter()
        self._transport: asyncio.DatagramTransport | None = None
        self._closing = False

    async def pull(self, node: int, headers: Headers, body: bytes) -> Answer:
        """Ask the SuperLink for a node's message until there is one, or the time is over."""
        rung = self._rung[node]
        # Nobody is let in, displaced or announced before the SuperLink has checked the signature.
        answer = await self._ask(headers, body)
        if answer.status == 200:
            self._announce(node)
        if not answer.says_no_message or self._closing or len(self._waiting) >= _MOST_WAITING:
            return answer
        called = asyncio.Event()
        if (earlier := self._waiting.get(node)) is not None:
            earlier.set()  # its SuperNode has gone, and must not be given a message
        self._waiting[node] = called
        if self._rung[node] != rung:
            called.set()
        try:
            return await self._wait(node, called, answer, headers, body)
        finally:
            if self._waiting.get(node) is called:
                del self._waiting[node]

    def close(self) -> None:
        """Send everybody away with "no message"."""
        self._closing = True
        for called in self._waiting.values():
            called.set()

    async def _wait(
        self, node: int, called: asyncio.Event, answer: Answer, headers: Headers, body: bytes
    ) -> Answer:
        loop = asyncio.get_running_loop()
        until = loop.time() + HOLD_SECONDS
        while answer.says_no_message and (left := until - loop.time()) > 0:
            pause = max(_LOOK_SECONDS, len(self._waiting) / _ASKED_PER_SECOND)
            with suppress(TimeoutError):
                await asyncio.wait_for(called.wait(), min(pause, left))
            if self._closing or self._waiting.get(node) is not called:
                break
            called.clear()
            answer = await self._ask(headers, body)
        return answer

    async def _ask(self, headers: Headers, body: bytes) -> Answer:
        try:
            response = await self._superlink.post(PATH, content=body, headers=list(headers))
        except httpx.HTTPError as error:
            logger.warning("the SuperLink does not answer (%s)", type(error).__name__)
            return Answer(502, [], b"")  # a SuperNode tries again then
        kind = response.headers.get("content-type", "").encode()
        return Answer(response.status_code, [(b"content-type", kind)], response.content)

    def _announce(self, node: int) -> None:
        """Tell whoever last rang for a node that it has come in."""
        ringer = self._ringers.get(node)
        if ringer is not None and self._transport is not None:
            self._transport.sendto(write_node(node), ringer)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if len(data) != NODE_BYTES:
            return
        node = read_node(data)
        if len(self._ringers) > _MOST_WAITING:
            self._ringers.clear()
            self._rung.clear()
        self._ringers[node] = address
        self._rung[node] += 1
        if (called := self._waiting.get(node)) is not None:
            called.set()
