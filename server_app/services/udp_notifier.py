"""Notifications between the ServerApp and the long-poll gateway: UDP on this machine.

Each datagram holds one node id. A datagram may be lost and both ends may restart: notifications
save time, and nothing depends on them.
"""

import os
import socket
import time
from contextlib import suppress

from protocol.address import Address
from strategies.session.reply_notifier import ReplyNotifier

ADDRESS_VARIABLE = "FEDDC_LONG_POLL"  # HOST:PORT, for the ServerApp that the SuperLink starts
NODE_BYTES = 8


class UdpNotifier(ReplyNotifier):
    """Notifies the gateway of messages, and learns from it which nodes have polled again."""

    available = True

    def __init__(self, gateway: Address) -> None:
        self._gateway = (gateway.host, gateway.port)
        family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)

    def message_sent(self, node: int) -> None:
        with suppress(OSError):  # no gateway is running: the SuperNode polls by itself
            self._socket.sendto(write_node(node), self._gateway)

    def wait(self, seconds: float) -> frozenset[int]:
        """Wait for at most `seconds`; return the nodes that polled since the last call."""
        until = time.monotonic() + seconds
        nodes: set[int] = set()
        while (left := until - time.monotonic()) > 0 and not nodes:
            self._socket.settimeout(left)
            nodes |= self._receive()
        # Several nodes often poll together; datagrams that are already there cost no waiting.
        self._socket.setblocking(False)
        while more := self._receive():
            nodes |= more
        return frozenset(nodes)

    def _receive(self) -> set[int]:
        try:
            data, sender = self._socket.recvfrom(NODE_BYTES + 1)
        except OSError:  # none in time
            return set()
        is_ours = len(data) == NODE_BYTES and sender[:2] == self._gateway
        return {read_node(data)} if is_ours else set()


def find_notifier() -> ReplyNotifier:
    """Return this coordinator's notifier; in a simulation, one without notifications."""
    address = os.environ.get(ADDRESS_VARIABLE)
    return UdpNotifier(Address.parse(address)) if address else ReplyNotifier()


def write_node(node: int) -> bytes:
    return node.to_bytes(NODE_BYTES, "big")


def read_node(data: bytes) -> int:
    return int.from_bytes(data, "big")
