"""A hospital whose clock is wrong is asked about its clock, and not told of an attack."""

import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from client_app.check.reachability import WrongClock, why_unreachable
from protocol.address import Address
from protocol.sealing.keys import Identity
from protocol.study.connection import Connection
from server_app.study import certificates
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled

NOW = datetime.now(UTC)
# When the coordinator made its authority and its server's certificate, seen from the hospital.
CLOCKS = {
    "three years ahead": (NOW - timedelta(days=3 * 365), NOW - timedelta(days=3 * 365)),
    "two days behind": (NOW + timedelta(days=2), NOW + timedelta(days=2)),
    "two days behind a renewed certificate": (NOW - timedelta(days=9), NOW + timedelta(days=2)),
}


@dataclass(frozen=True)
class Server:
    address: Address
    tls: Path

    def connection(self, coordinator: Identity) -> Connection:
        return Connection.make(self.address, (self.tls / "ca.crt").read_text(), coordinator)


class _NotFound(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


class _Server(HTTPServer):
    def handle_error(self, request: object, address: object) -> None:
        """A client that does not trust the certificate hangs up."""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[datetime, datetime], Server]]:
    """Start a server that has the study's certificate, made at some time."""
    with ExitStack() as stack:

        def started(authority_made: datetime, server_made: datetime) -> Server:
            tls = tmp_path / f"tls {len(list(tmp_path.iterdir()))}"
            tls.mkdir()
            certificates.make_authority(tls, "hearts", authority_made)
            certificates.make_server_certificate(tls, "localhost", server_made)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls / "server.pem", tls / "server.key")
            server = stack.enter_context(_Server(("127.0.0.1", 0), _NotFound))
            server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            return Server(Address("127.0.0.1", server.server_port), tls)

        yield started


@pytest.mark.parametrize("clock", CLOCKS)
def test_check_asks_whether_the_clock_is_right_with_all_dates(
    clock: str, serve: Callable[[datetime, datetime], Server], enrolled: Enrolled
) -> None:
    server = serve(*CLOCKS[clock])
    enrolled.folder.save_connection(server.connection(enrolled.coordinator))

    done = feddc("check", "--folder", enrolled.folder.path)

    assert done.exit_code == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("✗")]
    assert "clock: is this machine's clock right? It shows " in line
    shown, start, end = re.findall(r"\d{4}-\d\d-\d\d", line)
    assert abs(datetime.fromisoformat(f"{shown}T00:00+00:00") - NOW) < timedelta(days=2)
    assert not start <= shown <= end
    assert "firewall" not in done.stdout


def test_a_clock_that_is_right_is_not_asked_about(
    serve: Callable[[datetime, datetime], Server],
) -> None:
    assert why_unreachable(serve(NOW, NOW).connection(Identity.generate())) == ""


@pytest.mark.parametrize("age", [0, 350])
def test_check_warns_in_the_last_month_of_the_coordinators_certificate(
    age: int, serve: Callable[[datetime, datetime], Server], enrolled: Enrolled
) -> None:
    server = serve(NOW - timedelta(days=400), NOW - timedelta(days=age))
    enrolled.folder.save_connection(server.connection(enrolled.coordinator))

    done = feddc("check", "--folder", enrolled.folder.path)

    lines = [line for line in done.stdout.splitlines() if "coordinator: " in line]
    assert [line[0] for line in lines] == (["!"] if age else ["✓"])
    assert ("its certificate expires in 1" in lines[0]) == bool(age)
    assert ("feddc coordinator renew-certificate" in done.stdout) == bool(age)


def test_a_server_without_tls_1_3_is_refused(tmp_path: Path) -> None:
    certificates.make_authority(tmp_path, "hearts")
    certificates.make_server_certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with _Server(("127.0.0.1", 0), _NotFound) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = Server(Address("127.0.0.1", server.server_port), tmp_path)
        try:
            assert "protocol version" in why_unreachable(place.connection(Identity.generate()))
        finally:
            server.shutdown()


def test_an_expired_certificate_of_another_authority_is_another_certificate(
    serve: Callable[[datetime, datetime], Server],
) -> None:
    expired = NOW - timedelta(days=3 * 365)
    study, stranger = serve(NOW, NOW), serve(expired, expired)
    connection = Connection.make(
        stranger.address, (study.tls / "ca.crt").read_text(), Identity.generate()
    )

    assert "its certificate is not the study's" in why_unreachable(connection)


def test_without_a_network_the_pinned_certificate_is_compared(
    serve: Callable[[datetime, datetime], Server],
) -> None:
    later = NOW + timedelta(days=2)
    tls = serve(later, later).tls
    nowhere = Connection.make(
        Address("127.0.0.1", 9), (tls / "ca.crt").read_text(), Identity.generate()
    )

    with pytest.raises(WrongClock, match="is this machine's clock right"):
        why_unreachable(nowhere)


def test_connect_explains_the_supernode_s_failure_by_the_clock(
    serve: Callable[[datetime, datetime], Server], enrolled: Enrolled
) -> None:
    server = serve(*CLOCKS["three years ahead"])
    enrolled.folder.save_connection(server.connection(enrolled.coordinator))
    command = [sys.executable, "-m", "operation.cli", "hospital", "connect"]
    process = subprocess.Popen(
        [*command, "--folder", str(enrolled.folder.path)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "starting it again" in line:
                break
    finally:
        process.terminate()
        process.communicate(timeout=120)

    assert "supernode can't verify the coordinator: is this machine's clock right?" in lines[-1]
    assert not any("intercepted" in line for line in lines)
