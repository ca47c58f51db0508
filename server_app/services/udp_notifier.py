"""The bell between the ServerApp and the waiting room: datagrams on this machine, a node in each.

A datagram may be lost, and both ends may be started again: the bell saves time, and nothing else
depends on it.
"""

import os
import socket
import time
from contextlib import suppress

from protocol.address import Address
from strategies.session.reply_notifier import Bell

ADDRESS_VARIABLE = "FEDDC_WAITING_ROOM"  # HOST:PORT, for the ServerApp that the SuperLink starts
NODE_BYTES = 8


class LoopbackBell(Bell):
    """Rings in the waiting room, and hears from it who has come back."""

    tells = True

    def __init__(self, waiting_room: Address) -> None:
        self._room = (waiting_room.host, waiting_room.port)
        family = socket.AF_INET6 if ":" in waiting_room.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)

    def ring(self, node: int) -> None:
        with suppress(OSError):  # nobody is there: the SuperNode asks by itself after a while
            self._socket.sendto(write_node(node), self._room)

    def wait(self, seconds: float) -> frozenset[int]:
        """Wait at most so long; return whoever has come back since the last time."""
        until = time.monotonic() + seconds
        heard: set[int] = set()
        while (left := until - time.monotonic()) > 0 and not heard:
            self._socket.settimeout(left)
            heard |= self._heard()
        # Several often come together; what is already there costs no waiting.
        self._socket.setblocking(False)
        while more := self._heard():
            heard |= more
        return frozenset(heard)

    def _heard(self) -> set[int]:
        try:
            data, sender = self._socket.recvfrom(NODE_BYTES + 1)
        except OSError:  # none in time
            return set()
        return {read_node(data)} if len(data) == NODE_BYTES and sender[:2] == self._room else set()


def find_bell() -> Bell:
    """Return the bell of this coordinator; outside of one (a simulation), one that can't tell."""
    address = os.environ.get(ADDRESS_VARIABLE)
    return LoopbackBell(Address.parse(address)) if address else Bell()


def write_node(node: int) -> bytes:
    return node.to_bytes(NODE_BYTES, "big")


def read_node(data: bytes) -> int:
    return int.from_bytes(data, "big")
