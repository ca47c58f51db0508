"""SuperNodes that reach the SuperLink through a hospital's proxy: who gets in, and who does not."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from client_app.check.reachability import why_unreachable
from client_app.configuration import Configuration
from client_app.enrol.enrolment import initialise, renew_transport_key
from client_app.hospital_folder import HospitalFolder
from operation.flower.control_api import pack
from protocol.address import Address
from protocol.study.connection import Connection
from server_app.study.creation import create_study
from server_app.study.registration import control, register_members
from tests.processes import children, is_alive, wait_until
from tests.server_app.conftest import HOST, Connected, Coordinator

pytestmark = [pytest.mark.timing, pytest.mark.slow]


class ConnectProxy:
    """An HTTP CONNECT proxy, like a hospital's: it alone knows where the coordinator is."""

    def __init__(self, port: int) -> None:
        self.asked: list[bytes] = []
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._tunnel, args=(link,), daemon=True).start()

    def _tunnel(self, link: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (part := link.recv(4096)):
                return
            head += part
        line = head.split(b"\r\n")[0]
        self.asked.append(line)
        if not line.startswith(f"CONNECT {HOST}:{self._target} ".encode()):
            link.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            link.close()
            return
        far = socket.create_connection(("127.0.0.1", self._target))
        link.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for source, sink in ((link, far), (far, link)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(65536):
            sink.sendall(part)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            end.close()


@pytest.fixture
def connect_proxy(coordinator: Coordinator) -> Iterator[ConnectProxy]:
    with closing(ConnectProxy(coordinator.study.address.port)) as proxy:
        yield proxy


def proxies(connect_proxy: ConnectProxy) -> dict[str, str]:
    """The environment of a hospital where everything goes through its proxy."""
    names = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
    return dict.fromkeys(names, connect_proxy.url) | {"NO_PROXY": "", "no_proxy": ""}


def status_of(coordinator: Coordinator, name: str) -> str:
    (node,) = [node for node in control(coordinator.study).nodes() if node.name == name]
    return str(node.status)


def test_a_large_message_passes_proxy_superlink_and_supernode(
    coordinator: Coordinator, connect_proxy: ConnectProxy
) -> None:
    api = control(coordinator.study)
    bundle = pack(server_app="large_message:server", client_app="large_message:client", config={})
    with coordinator.connected(coordinator.hospitals["Mercy"], **proxies(connect_proxy)) as node:
        node.wait_for("SuperNode ID")
        assert status_of(coordinator, "Mercy") == "online"
        run_id = api.start_run(bundle)
        wait_until(lambda: api.is_over(run_id), 600)
        assert api.status(run_id).status == "finished:completed", node.text()
    told = json.loads((coordinator.study.folder / "large.json").read_text())
    assert told["bytes"] == 45_000_000
    assert told["same"]
    # Nothing but the coordinator was ever asked for: not Flower's own API on this machine.
    assert set(connect_proxy.asked) == {
        f"CONNECT {HOST}:{coordinator.study.address.port} HTTP/1.1".encode()
    }
    wait_until(lambda: status_of(coordinator, "Mercy") == "offline")
    lines = [
        json.loads(line) for line in node.log.parent.joinpath("transport/connect.jsonl").open()
    ]
    assert {"time", "level", "source", "text"} == set(lines[0])


def test_a_supernode_whose_key_is_not_registered_is_refused(
    coordinator: Coordinator, connect_proxy: ConnectProxy
) -> None:
    stranger = HospitalFolder(coordinator.study.folder.parent / "stranger")
    initialise(stranger, "stranger", "")
    stranger.save_connection(coordinator.study.connection())

    with coordinator.connected(stranger, **proxies(connect_proxy)) as node:
        node.wait_for("was rejected: the coordinator has not enrolled this SuperNode's key")
        assert "SuperNode ID" not in node.text()


def test_a_supernode_does_not_connect_where_the_certificate_is_another_s(
    coordinator: Coordinator, connect_proxy: ConnectProxy, tmp_path: Path
) -> None:
    other = create_study(
        tmp_path / "other",
        name="hearts",
        address=str(coordinator.study.address),
        listen="",
        internal_port=1,
    )
    place = coordinator.hospitals["Köln Süd"]
    place.save_connection(other.connection())

    with coordinator.connected(place, **proxies(connect_proxy)) as node:
        node.wait_for("found another certificate than the study's")
        assert "SuperNode ID" not in node.text()
    place.save_connection(coordinator.study.connection())


@pytest.fixture
def connected_node(coordinator: Coordinator, connect_proxy: ConnectProxy) -> Iterator[Connected]:
    place = coordinator.hospitals["Köln Süd"]
    with coordinator.connected(place, **proxies(connect_proxy)) as node:
        node.wait_for("SuperNode ID")
        yield node


def test_a_killed_supernode_is_started_again(connected_node: Connected) -> None:
    (child,) = children(connected_node.process.pid)
    os.kill(child, signal.SIGKILL)
    connected_node.wait_for("supernode ended with signal SIGKILL; starting it again in 1 s")
    wait_until(lambda: connected_node.text().count("SuperNode ID") == 2)
    # It need not try for a minute, until the SuperLink has missed the killed one by itself.
    assert "was rejected" not in connected_node.text()


def test_a_supernode_ends_with_the_command_that_started_it(connected_node: Connected) -> None:
    (child,) = children(connected_node.process.pid)
    connected_node.process.kill()
    wait_until(lambda: not is_alive(child))


def test_a_removed_member_is_refused_and_comes_back_with_a_new_key(
    coordinator: Coordinator,
) -> None:
    place = coordinator.enrol("Charite")
    assert register_members(coordinator.study).registered == ("Charite",)

    done = coordinator.feddc("remove", "Charite", "--yes")
    assert "May no longer connect: Charite." in done.stdout

    card, card_file = renew_transport_key(place, Configuration.read(place.configuration))
    done = coordinator.feddc("enrol", str(card_file), "--fingerprint", card.fingerprint)
    assert done.returncode == 0, done.stderr
    assert "May connect from now on: Charite." in done.stdout
    coordinator.feddc("remove", "Charite", "--yes")


def test_check_says_whether_the_coordinator_is_reached(
    coordinator: Coordinator, connect_proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = coordinator.study.connection()
    for name, value in proxies(connect_proxy).items():
        monkeypatch.setenv(name, value)
    assert why_unreachable(connection) == ""

    elsewhere = Connection(Address("elsewhere.test", 1), connection.certificate, b"")
    assert "not reachable through the proxy" in why_unreachable(elsewhere)
