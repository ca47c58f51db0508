"""The long-poll server as a process, with a scripted SuperLink and a real notifier."""

import http.client
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node

from protocol.address import Address
from server_app.services.long_poll import PATH
from server_app.services.udp_notifier import UdpNotifier, find_notifier
from server_app.study.certificates import make_authority, make_server_certificate
from tests.processes import free_port, wait_until

NODE = 2**63 + 5
REQUEST = PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()

pytestmark = pytest.mark.timing


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
        body = self.server.body  # once: a test changes it at any moment
        self.server.asked += 1
        self.send_response(200)
        self.send_header("content-type", "application/protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


class Server:
    """The process, and a way to ask it."""

    def __init__(self, address: Address, process: subprocess.Popen[bytes]) -> None:
        self.address, self.process = address, process

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address.host, self.address.port, timeout=120)

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
def server(superlink: SuperLink, tmp_path: Path) -> Iterator[Server]:
    address = Address("127.0.0.1", free_port())
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "server_app.services.long_poll_server"),
            f"--listen={address}",
            f"--superlink=127.0.0.1:{superlink.server_address[1]}",
            f"--authority={tmp_path / 'ca.crt'}",
        ]
    )
    wait_until(lambda: process.poll() is not None or _listens(address))
    yield Server(address, process)
    process.kill()
    process.wait()


@pytest.fixture
def held(server: Server, superlink: SuperLink) -> Iterator["Future[tuple[int, bytes]]"]:
    """A SuperNode whose poll is held."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(server.ask)
        wait_until(lambda: superlink.asked > 1)  # the first answer was held back
        assert not future.done()
        yield future


def test_a_notification_releases_the_message_and_the_next_poll_is_reported(
    server: Server,
    superlink: SuperLink,
    held: "Future[tuple[int, bytes]]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDDC_LONG_POLL", str(server.address))
    notifier = find_notifier()
    assert notifier.available
    superlink.body = b"message"
    notifier.message_sent(NODE)
    assert held.result(60) == (200, b"message")
    assert notifier.wait(0.2) == frozenset()  # it has only got the message
    assert server.ask() == (200, b"message")
    assert notifier.wait(60) == {NODE}  # and now it is back


def test_only_the_one_path_is_there(server: Server, superlink: SuperLink) -> None:
    for path in ("/", "/v1/control/list-runs", "/v1/fleet/push-messages", f"{PATH}/"):
        assert server.ask(path)[0] == 404
    assert server.ask(method="GET", body=b"")[0] == 404
    assert server.ask(body=bytes(100_000))[0] == 413
    assert superlink.asked == 0


def test_what_cannot_be_read_is_the_superlinks_to_refuse(
    server: Server, superlink: SuperLink
) -> None:
    superlink.body = b"refused"
    assert server.ask(body=b"\xff\xff") == (200, b"refused")


def test_told_to_stop_it_sends_everybody_away_and_ends_well(
    server: Server, held: "Future[tuple[int, bytes]]"
) -> None:
    server.process.send_signal(signal.SIGTERM)
    assert held.result(60) == (200, b"")
    assert server.process.wait(60) == 0


def test_a_notifier_without_a_server_costs_no_more_than_the_wait() -> None:
    notifier = UdpNotifier(Address("127.0.0.1", 9))
    notifier.message_sent(NODE)
    assert notifier.wait(0.05) == frozenset()


def test_a_simulation_has_no_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDDC_LONG_POLL", raising=False)
    assert not find_notifier().available


def _listens(address: Address) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address.host, address.port)) == 0
