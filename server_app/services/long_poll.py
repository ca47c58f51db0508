"""Long polling for SuperNodes, between the proxy and the SuperLink.

A SuperNode that gets "no message" sleeps for three seconds, even if a message arrives meanwhile.
The gateway holds that reply back until the ServerApp notifies it of a message (udp_notifier.py),
and then asks the SuperLink again with the SuperNode's own signed headers. A SuperNode polls only
after it has delivered its last reply completely; the gateway reports that to the ServerApp.
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

logger = logging.getLogger("feddc.long-poll")

PATH = "/v1/fleet/pull-messages"
HOLD_SECONDS = 20.0  # a SuperNode times out after 30
# Without a notification (another app's run, a lost datagram) the gateway asks the SuperLink this
# often for each held poll, and for all of them together at most twenty times a second.
_RETRY_SECONDS, _RETRIES_PER_SECOND = 1.0, 20.0
_MOST_POLLS = 2000

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class PollReply:
    """The SuperLink's reply, to be passed on unchanged."""

    status: int
    headers: Headers
    body: bytes

    @property
    def has_no_message(self) -> bool:
        return self.status == 200 and not self.body


class LongPollGateway(asyncio.DatagramProtocol):
    """Holds the polls of SuperNodes, and exchanges notifications with the ServerApp."""

    def __init__(self, superlink: httpx.AsyncClient) -> None:
        self._superlink = superlink
        self._polls: dict[int, asyncio.Event] = {}
        self._notifiers: dict[int, Any] = {}
        self._notifications: Counter[int] = Counter()
        self._transport: asyncio.DatagramTransport | None = None
        self._closing = False

    async def pull(self, node: int, headers: Headers, body: bytes) -> PollReply:
        """Ask the SuperLink for a node's message until there is one or the hold time is over."""
        before = self._notifications[node]
        # A poll counts for nothing until the SuperLink has checked its signature.
        reply = await self._ask(headers, body)
        if reply.status == 200:
            self._report(node)
        if not reply.has_no_message or self._closing or len(self._polls) >= _MOST_POLLS:
            return reply
        notified = asyncio.Event()
        if (earlier := self._polls.get(node)) is not None:
            earlier.set()  # its SuperNode has disconnected, and must not get a message
        self._polls[node] = notified
        if self._notifications[node] != before:
            notified.set()
        try:
            return await self._hold(node, notified, reply, headers, body)
        finally:
            if self._polls.get(node) is notified:
                del self._polls[node]

    def close(self) -> None:
        """Release all held polls with "no message"."""
        self._closing = True
        for notified in self._polls.values():
            notified.set()

    async def _hold(
        self, node: int, notified: asyncio.Event, reply: PollReply, headers: Headers, body: bytes
    ) -> PollReply:
        loop = asyncio.get_running_loop()
        until = loop.time() + HOLD_SECONDS
        while reply.has_no_message and (left := until - loop.time()) > 0:
            pause = max(_RETRY_SECONDS, len(self._polls) / _RETRIES_PER_SECOND)
            with suppress(TimeoutError):
                await asyncio.wait_for(notified.wait(), min(pause, left))
            if self._closing or self._polls.get(node) is not notified:
                break
            notified.clear()
            reply = await self._ask(headers, body)
        return reply

    async def _ask(self, headers: Headers, body: bytes) -> PollReply:
        try:
            response = await self._superlink.post(PATH, content=body, headers=list(headers))
        except httpx.HTTPError as error:
            logger.warning("the SuperLink does not answer (%s)", type(error).__name__)
            return PollReply(502, [], b"")  # the SuperNode retries
        kind = response.headers.get("content-type", "").encode()
        return PollReply(response.status_code, [(b"content-type", kind)], response.content)

    def _report(self, node: int) -> None:
        """Report a poll to the process that last notified this node."""
        address = self._notifiers.get(node)
        if address is not None and self._transport is not None:
            self._transport.sendto(write_node(node), address)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if len(data) != NODE_BYTES:
            return
        node = read_node(data)
        if len(self._notifiers) > _MOST_POLLS:
            self._notifiers.clear()
            self._notifications.clear()
        self._notifiers[node] = address
        self._notifications[node] += 1
        if (notified := self._polls.get(node)) is not None:
            notified.set()
