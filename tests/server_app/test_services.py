"""SuperLink and proxy as real processes: who gets in, who does not, and that nothing is left."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from client_app.enrolment import initialise, renew_transport_key
from client_app.folder import HospitalFolder
from client_app.reaching import why_unreachable
from protocol.connection import Address, Connection
from server_app import own_processes, services
from server_app.control_api import pack
from server_app.founding import found
from server_app.registration import control, register_members
from server_app.serving import PARTS
from server_app.study import Study
from tests.processes import children, is_alive, wait_until

Coordinator = Any  # tests/server_app/conftest.py
HOST = "coordinator.test"  # known to nobody but the tests' CONNECT proxy


def ask(study: Study, request: bytes, *, protocols: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
    """Send raw bytes to the proxy as an outsider would; return the status line and the rest."""
    context = ssl.create_default_context(cafile=str(study.authority))
    if protocols:
        context.set_alpn_protocols(list(protocols))
    with (
        socket.create_connection(("127.0.0.1", study.address.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as secure,
    ):
        try:
            secure.sendall(request)
            answer = b""
            while part := secure.recv(65536):
                answer += part
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            pass
        if protocols:
            return (secure.selected_alpn_protocol() or "").encode(), answer
    status, _, rest = answer.partition(b"\r\n")
    return status, rest


def post(path: str, body: bytes = b"", *, version: str = "1.1", extra: str = "") -> bytes:
    head = f"POST {path} HTTP/{version}\r\nHost: {HOST}\r\nConnection: close\r\n"
    head += f"Content-Type: application/protobuf\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


# --- from outside ---------------------------------------------------------------------------------

REFUSED = [
    "/",
    "/health",
    "/docs",
    "/openapi.json",
    "/v1/control/list-runs",
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/runtime/acquire-task",
    "/v1/runtime/pull-messages",
    "/v1/responses",
    "//v1/control/list-runs",
    "/v1//control/list-runs",
    "/v1/fleet",
    "/v1/fleet/",
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/..%2fcontrol/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/%252e%252e/control/list-runs",
    "/v1/fleet/..;/control/list-runs",
    "/v1/fleet/pull-messages/../../control/list-runs",
    "/v1/fleet/pull-messages%2f..%2f..%2fcontrol%2flist-runs",
    "/v1/fleet/pull-messages/",
    "/v1/fleet/x/y",
    "/V1/CONTROL/list-runs",
    "/v1/control/list-runs?/v1/fleet/pull-messages",
    "/v1/control/list-runs%23/v1/fleet/pull-messages",
    "/v1/fleet\\..\\control\\list-runs",
    "https://coordinator.test/v1/control/list-runs",
    "https://127.0.0.1:1/v1/runtime/acquire-task",
    "http://127.0.0.1/v1/control/list-runs",
]


@pytest.mark.parametrize("path", REFUSED)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_the_proxy_lets_only_the_fleet_api_through(
    path: str, version: str, coordinator: Coordinator
) -> None:
    status, rest = ask(coordinator.study, post(path, version=version))

    assert status.split(b" ")[1] in (b"400", b"404"), (status, rest)
    assert b"nginx\r\n" in rest, "the SuperLink itself answered"  # nginx without its version


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PATCH"])
def test_the_proxy_lets_only_posts_through(method: str, coordinator: Coordinator) -> None:
    request = post("/v1/fleet/pull-messages").replace(b"POST", method.encode(), 1)

    status, rest = ask(coordinator.study, request)

    assert status.split(b" ")[1] in (b"403", b"405", b"400"), status
    assert b"Server: nginx\r\n" in rest


def test_two_requests_in_one_are_not_smuggled(coordinator: Coordinator) -> None:
    hidden = post("/v1/control/list-runs")
    both = "Transfer-Encoding: chunked\r\n"
    request = post("/v1/fleet/pull-messages", b"0\r\n\r\n" + hidden, extra=both)

    status, rest = ask(coordinator.study, request)

    assert status.split(b" ")[1] in (b"400", b"401"), status
    assert rest.count(b"HTTP/1.1 ") == 0 or b"HTTP/1.1 404" in rest


def test_the_fleet_api_answers_with_authentication_wanted(coordinator: Coordinator) -> None:
    status, rest = ask(coordinator.study, post("/v1/fleet/pull-messages"))

    assert status.split(b" ")[1] == b"401"
    assert b"Invalid SuperNode authentication" in rest


def test_http_2_is_not_spoken(coordinator: Coordinator) -> None:
    chosen, _ = ask(coordinator.study, b"GET / HTTP/1.0\r\n\r\n", protocols=("h2", "http/1.1"))

    assert chosen == b"http/1.1"


def test_a_body_over_the_limit_is_refused_without_being_read(coordinator: Coordinator) -> None:
    head = post("/v1/fleet/push-object").replace(b"Length: 0", b"Length: 9000000")

    status, _ = ask(coordinator.study, head)

    assert status.split(b" ")[1] == b"413"


def test_a_chunk_of_flower_s_is_within_the_limit(coordinator: Coordinator) -> None:
    body = bytes(5 * 1024 * 1024 + 1000)

    status, _ = ask(coordinator.study, post("/v1/fleet/push-object", body))

    assert status.split(b" ")[1] in (b"400", b"401", b"422")


def test_an_endless_body_is_cut_off(coordinator: Coordinator) -> None:
    chunk = b"100000\r\n" + bytes(0x100000) + b"\r\n"
    head = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n"
    head += "Content-Type: application/protobuf\r\nTransfer-Encoding: chunked\r\n\r\n"

    status, _ = ask(coordinator.study, head.encode() + 9 * chunk + b"0\r\n\r\n")

    assert status == b"" or status.split(b" ")[1] == b"413"


def test_the_control_api_listens_on_loopback_only(coordinator: Coordinator) -> None:
    port = coordinator.study.file.internal_port
    listening = [
        line.split()[1]
        for file in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(file).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    ours = [place for place in listening if int(place.rpartition(":")[2], 16) == port]

    assert ours == [f"0100007F:{port:04X}"]


def test_nothing_of_flower_s_is_in_the_proxy_s_folder(coordinator: Coordinator) -> None:
    temp = coordinator.study.proxy / "temp"

    assert not [path for path in temp.rglob("*") if path.is_file()]


# --- SuperNodes -----------------------------------------------------------------------------------


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
def way_out(coordinator: Coordinator) -> Iterator[ConnectProxy]:
    with closing(ConnectProxy(coordinator.study.address.port)) as proxy:
        yield proxy


def proxies(way_out: ConnectProxy) -> dict[str, str]:
    """The environment of a hospital where everything goes through its proxy."""
    names = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
    return dict.fromkeys(names, way_out.url) | {"NO_PROXY": "", "no_proxy": ""}


def status_of(coordinator: Coordinator, name: str) -> str:
    (node,) = [node for node in control(coordinator.study).nodes() if node.name == name]
    return str(node.status)


def test_a_large_message_passes_proxy_superlink_and_supernode(
    coordinator: Coordinator, way_out: ConnectProxy
) -> None:
    api = control(coordinator.study)
    bundle = pack(server_app="large_message:server", client_app="large_message:client", config={})
    with coordinator.connected(coordinator.hospitals["Mercy"], **proxies(way_out)) as node:
        node.wait_for("SuperNode ID")
        assert status_of(coordinator, "Mercy") == "online"
        run_id = api.start_run(bundle)
        wait_until(lambda: api.is_over(run_id), 240)
        assert api.status(run_id).status == "finished:completed", node.text()
    told = json.loads((coordinator.study.folder / "large.json").read_text())
    assert told["bytes"] == 45_000_000
    assert told["same"]
    # Nothing but the coordinator was ever asked for: not Flower's own API on this machine.
    assert set(way_out.asked) == {
        f"CONNECT {HOST}:{coordinator.study.address.port} HTTP/1.1".encode()
    }
    wait_until(lambda: status_of(coordinator, "Mercy") == "offline")
    lines = [
        json.loads(line) for line in node.log.parent.joinpath("transport/connect.jsonl").open()
    ]
    assert {"time", "level", "source", "text"} == set(lines[0])


def test_a_supernode_whose_key_is_not_registered_is_refused(
    coordinator: Coordinator, way_out: ConnectProxy
) -> None:
    stranger = HospitalFolder(coordinator.study.folder.parent / "stranger")
    initialise(stranger, "stranger", "")
    stranger.keep_connection(coordinator.study.connection())

    with coordinator.connected(stranger, **proxies(way_out)) as node:
        node.wait_for("was turned away: the coordinator has not enrolled this SuperNode's key")
        assert "SuperNode ID" not in node.text()


def test_a_supernode_does_not_connect_where_the_certificate_is_another_s(
    coordinator: Coordinator, way_out: ConnectProxy, tmp_path: Path
) -> None:
    other = found(
        tmp_path / "other",
        name="hearts",
        address=str(coordinator.study.address),
        listen="",
        internal_port=1,
    )
    place = coordinator.hospitals["St Mary"]
    place.keep_connection(other.connection())

    with coordinator.connected(place, **proxies(way_out)) as node:
        node.wait_for("found another certificate than the study's")
        assert "SuperNode ID" not in node.text()
    place.keep_connection(coordinator.study.connection())


def test_a_killed_supernode_is_started_again(
    coordinator: Coordinator, way_out: ConnectProxy
) -> None:
    place = coordinator.hospitals["St Mary"]
    with coordinator.connected(place, **proxies(way_out)) as node:
        node.wait_for("SuperNode ID")
        (child,) = children(node.process.pid)
        os.kill(child, signal.SIGKILL)
        node.wait_for("supernode ended with signal SIGKILL; starting it again in 1 s")
        # Not after a minute, when the SuperLink would notice by itself.
        wait_until(lambda: node.text().count("SuperNode ID") == 2, 50)
        assert "turned away" not in node.text()


def test_a_supernode_ends_with_the_command_that_started_it(
    coordinator: Coordinator, way_out: ConnectProxy
) -> None:
    place = coordinator.hospitals["St Mary"]
    with coordinator.connected(place, **proxies(way_out)) as node:
        node.wait_for("SuperNode ID")
        (child,) = children(node.process.pid)
        node.process.kill()
        wait_until(lambda: not is_alive(child), 30)


def test_a_removed_member_is_refused_and_comes_back_with_a_new_key(
    coordinator: Coordinator,
) -> None:
    place = coordinator.enrol("Charite")
    assert register_members(coordinator.study).registered == ("Charite",)

    done = coordinator.feddc("remove", "Charite", "--yes")
    assert "May no longer connect: Charite." in done.stdout

    card, card_file = renew_transport_key(place, "Charite", "")
    done = coordinator.feddc("enrol", str(card_file), "--yes", card.fingerprint)
    assert done.returncode == 0, done.stderr
    assert "May connect from now on: Charite." in done.stdout
    coordinator.feddc("remove", "Charite", "--yes")


def test_check_says_whether_the_coordinator_is_reached(
    coordinator: Coordinator, way_out: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = coordinator.study.connection()
    for name, value in proxies(way_out).items():
        monkeypatch.setenv(name, value)
    assert why_unreachable(connection) == ""

    elsewhere = Connection(Address("elsewhere.test", 1), connection.certificate, b"")
    assert "not reachable through the proxy" in why_unreachable(elsewhere)


# --- up and down ----------------------------------------------------------------------------------


def test_up_twice_says_so_and_starts_nothing(coordinator: Coordinator) -> None:
    before = services.running(coordinator.study)

    done = coordinator.feddc("up")

    assert done.returncode == 0
    assert "already up" in done.stdout
    assert services.running(coordinator.study) == before


def test_a_killed_superlink_and_proxy_are_started_again(coordinator: Coordinator) -> None:
    before = services.running(coordinator.study)
    for part in PARTS:
        os.kill(before[part], signal.SIGKILL)
    wait_until(lambda: not services.answers(coordinator.study, "superlink"))

    wait_until(lambda: all(services.answers(coordinator.study, part) for part in PARTS))

    after = services.running(coordinator.study)
    assert after["supervisor"] == before["supervisor"]
    assert after["superlink"] != before["superlink"]
    assert {node.name for node in control(coordinator.study).nodes()} >= {"Mercy", "St Mary"}


def test_the_log_is_json_and_has_no_secret(coordinator: Coordinator) -> None:
    text = (coordinator.study.logs / "coordinator.jsonl").read_text()

    assert {json.loads(line)["source"] for line in text.splitlines()} >= {"superlink", "proxy"}
    assert coordinator.study.identity_file.read_bytes().hex() not in text


def test_a_killed_supervisor_leaves_nothing_and_up_works_again(
    nginx: str, new_coordinator: Callable[[], Coordinator]
) -> None:
    made = new_coordinator()
    assert made.feddc("up").returncode == 0
    pids = services.running(made.study)
    os.kill(pids["supervisor"], signal.SIGKILL)
    wait_until(lambda: all(not Path(f"/proc/{pids[p]}").exists() for p in PARTS), 30)
    assert services.running(made.study) == {}

    assert made.feddc("up").returncode == 0
    assert made.feddc("down").returncode == 0
    assert services.running(made.study) == {}
    assert own_processes.command_lines(made.study.flower_home) == []
    assert "was not up" in made.feddc("down").stdout


def test_in_a_container_members_are_registered_too(
    new_coordinator: Callable[[], Coordinator],
) -> None:
    made = new_coordinator()
    made.enrol("Mercy")
    command = [sys.executable, "-m", "lab.cli", "coordinator", "up", "--foreground"]
    process = subprocess.Popen(
        [*command, "--only", "superlink", "--study", str(made.study.folder)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "connect" in line)
        assert "May connect from now on: Mercy." in line
        assert [node.name for node in control(made.study).nodes()] == ["Mercy"]
        assert not services.answers(made.study, "proxy")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert own_processes.command_lines(made.study.flower_home) == []


@pytest.mark.parametrize("key", ["internal-port", "listen"])
def test_a_taken_port_is_said_before_anything_starts(
    key: str, nginx: str, new_coordinator: Callable[[], Coordinator]
) -> None:
    made = new_coordinator()
    port = made.study.file.internal_port if key == "internal-port" else made.study.address.port
    with socket.create_server(("127.0.0.1", port)):
        done = made.feddc("up")

    assert done.returncode == 1
    assert f"change {key} in study.toml" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert services.running(made.study) == {}


def test_without_nginx_up_says_what_to_install(
    new_coordinator: Callable[[], Coordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    from server_app import proxy

    monkeypatch.setattr(proxy.shutil, "which", lambda *_, **__: None)  # type: ignore[attr-defined]

    with pytest.raises(proxy.ProxyError, match="apt-get install nginx-light"):
        services.start(new_coordinator().study, PARTS)
