"""A courier that floods its agent's socket: long, slow, meaningless and repeated requests.

python -m benchmarks.support.hostile_courier SOCKET SECONDS REQUEST-FILE    (prints what it sent)
"""

import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

_HEAD = "POST /v1/request HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\n"
_THREADS = 3
_SLOW_CONNECTIONS = 150


class HostileCourier:
    """Sends junk of every kind until its time is up."""

    def __init__(self, path: str, seconds: float, request: bytes) -> None:
        self._path, self._request = path, request
        self._end = time.monotonic() + seconds
        self.sent: Counter[str] = Counter()

    def flood(self) -> None:
        """Send everything at once, each kind from threads of its own."""
        kinds: list[Callable[[], None]] = [
            lambda: self._repeat("oversized", _head(2**60)),
            lambda: self._repeat("no http", b"\x16\x03\x01" + bytes(200)),
            lambda: self._repeat("garbage", _head(2000) + bytes(2000)),
            lambda: self._repeat("replayed", _head(len(self._request)) + self._request),
        ]
        jobs = [kind for kind in kinds for _ in range(_THREADS)]
        jobs += [
            lambda: self._trickle("slow headers", b"POST /v1/request HTTP/1.1\r\nX: "),
            lambda: self._trickle("slow bodies", _head(1_000_000)),
            lambda: self._trickle("unread", (_head(len(self._request)) + self._request) * 20),
        ]
        threads = [threading.Thread(target=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _repeat(self, kind: str, data: bytes) -> None:
        """Send the same bytes over and over, each time on a new connection."""
        while time.monotonic() < self._end:
            with suppress(OSError), closing(self._connect()) as link:
                link.sendall(data)
                link.recv(1000)
                self.sent[kind] += 1

    def _trickle(self, kind: str, data: bytes) -> None:
        """Keep many connections open, and send a byte on each every second."""
        links: list[socket.socket] = []
        while time.monotonic() < self._end:
            while len(links) < _SLOW_CONNECTIONS:
                try:
                    links.append(self._connect())
                    links[-1].sendall(data)
                    self.sent[kind] += 1
                except OSError:
                    break
            time.sleep(1)
            for link in list(links):
                try:
                    link.sendall(b"x")
                except OSError:
                    link.close()
                    links.remove(link)
        for link in links:
            link.close()

    def _connect(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(5)
        link.connect(self._path)
        return link


def _head(length: int) -> bytes:
    return f"{_HEAD}Content-Length: {length}\r\n\r\n".encode()


def main() -> None:
    path, seconds, request = sys.argv[1:4]
    courier = HostileCourier(path, float(seconds), Path(request).read_bytes())
    courier.flood()
    print(json.dumps(courier.sent))


if __name__ == "__main__":
    main()
