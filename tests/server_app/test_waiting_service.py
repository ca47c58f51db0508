"""The waiting room as a process, with a SuperLink that does as the test says and a real bell."""

import http.client
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node

from protocol.address import Address
from server_app.services.long_poll import PATH
from server_app.services.udp_notifier import LoopbackBell, find_bell
from server_app.study.certificates import make_authority, make_server_certificate
from tests.processes import free_port, wait_until

NODE = 2**63 + 5
REQUEST = PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()


class SuperLink(ThreadingHTTPServer):
    """Answers every question with `body`, over TLS."""

    daemon_threads = True

    def __init__(self, tls: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body, self.asked = b"", 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "server.pem", tls / "server.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SuperLink

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.asked += 1
        self.send_response(200)
        self.send_header("content-type", "application/protobuf")
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *arguments: object) -> None:
        pass


class Room:
    """The process, and a way to ask it."""

    def __init__(self, address: Address, process: subprocess.Popen[bytes]) -> None:
        self.address, self.process = address, process

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address.host, self.address.port, timeout=30)

    def ask(
        self, path: str = PATH, body: bytes = REQUEST, method: str = "POST"
    ) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request(method, path, body=body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@pytest.fixture
def superlink(tmp_path: Path) -> Iterator[SuperLink]:
    make_authority(tmp_path, "test")
    make_server_certificate(tmp_path, "localhost")
    server = SuperLink(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def room(superlink: SuperLink, tmp_path: Path) -> Iterator[Room]:
    address = Address("127.0.0.1", free_port())
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "server_app.services.long_poll_server"),
            f"--listen={address}",
            f"--superlink=127.0.0.1:{superlink.server_address[1]}",
            f"--authority={tmp_path / 'ca.crt'}",
        ]
    )
    wait_until(lambda: process.poll() is not None or _listens(address), 60)
    yield Room(address, process)
    process.kill()
    process.wait()


@pytest.fixture
def held(room: Room, superlink: SuperLink) -> Iterator["Future[tuple[int, bytes]]"]:
    """Somebody who waits in the room."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(room.ask)
        wait_until(lambda: superlink.asked > 0)
        time.sleep(0.1)
        assert not future.done()
        yield future


def test_the_bell_brings_the_message_and_tells_who_comes_back(
    room: Room,
    superlink: SuperLink,
    held: "Future[tuple[int, bytes]]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDDC_WAITING_ROOM", str(room.address))
    bell = find_bell()
    assert bell.tells
    superlink.body = b"message"
    bell.ring(NODE)
    assert held.result(5) == (200, b"message")
    assert bell.wait(0.2) == frozenset()  # it has only got the message
    started = time.monotonic()
    assert room.ask() == (200, b"message")
    assert bell.wait(10) == {NODE}  # and now it is back
    assert time.monotonic() - started < 5


def test_only_the_one_path_is_there(room: Room, superlink: SuperLink) -> None:
    for path in ("/", "/v1/control/list-runs", "/v1/fleet/push-messages", f"{PATH}/"):
        assert room.ask(path)[0] == 404
    assert room.ask(method="GET", body=b"")[0] == 404
    assert room.ask(body=bytes(100_000))[0] == 413
    assert superlink.asked == 0


def test_what_cannot_be_read_is_the_superlinks_to_refuse(room: Room, superlink: SuperLink) -> None:
    superlink.body = b"refused"
    assert room.ask(body=b"\xff\xff") == (200, b"refused")


def test_for_who_hangs_up_nothing_more_is_asked(room: Room, superlink: SuperLink) -> None:
    connection = room.connect()
    connection.request("POST", PATH, body=REQUEST)
    wait_until(lambda: superlink.asked == 1)
    connection.close()
    time.sleep(0.3)
    LoopbackBell(room.address).ring(NODE)
    time.sleep(1.5)  # longer than until the next look
    assert superlink.asked == 1


def test_told_to_stop_it_sends_everybody_away_and_ends_well(
    room: Room, held: "Future[tuple[int, bytes]]"
) -> None:
    room.process.send_signal(signal.SIGTERM)
    assert held.result(5) == (200, b"")
    assert room.process.wait(10) == 0


def test_a_bell_without_a_room_costs_no_more_than_the_wait() -> None:
    bell = LoopbackBell(Address("127.0.0.1", 9))
    bell.ring(NODE)
    assert bell.wait(0.05) == frozenset()


def test_a_simulation_has_no_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDDC_WAITING_ROOM", raising=False)
    assert not find_bell().tells


def _listens(address: Address) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address.host, address.port)) == 0
