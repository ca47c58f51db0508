"""The forwarder, as a process of its own, between real sockets and a real proxy."""

import base64
import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from client_app.connect.forwarder import _MAXIMUM_CONNECTIONS
from client_app.connect.upstream import Place, Proxy, Upstream

ROOT = Path(__file__).parents[2]
SECRET = "p%40ss:word"  # noqa: S105 (of the test's own proxy; what HTTPS_PROXY holds; decoded: p@ss:word)


class _Coordinator(socketserver.ThreadingTCPServer):
    """Answers with what it got, when the other side has said that this was all."""

    daemon_threads = True
    accepted = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            assert isinstance(self.server, _Coordinator)
            self.server.accepted += 1
            said = b""
            while data := self.request.recv(65536):
                said += data
                if data == b"there?":
                    self.request.sendall(b"yes")
            self.request.sendall(b"you said " + said)


@dataclass
class _Proxy:
    """A proxy that knows CONNECT only, and wants to be asked politely."""

    address: str
    heads: list[str] = field(default_factory=list)


@pytest.fixture
def coordinator() -> Iterator[_Coordinator]:
    with _Coordinator(("127.0.0.1", 0), _Coordinator.Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def start_proxy() -> Iterator[Callable[[bytes], _Proxy]]:
    """Start a proxy that answers so; on 200 it connects, whatever the name, to 127.0.0.1."""
    listeners = []

    def start(answer: bytes = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n") -> _Proxy:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        proxy = _Proxy(f"127.0.0.1:{listener.getsockname()[1]}")

        def serve() -> None:
            while True:
                try:
                    near, _ = listener.accept()
                except OSError:
                    return
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += near.recv(1)
                proxy.heads.append(head.decode())
                near.sendall(answer)
                if b" 200 " not in answer:
                    near.close()
                    continue
                port = int(head.split()[1].rpartition(b":")[2])
                far = socket.create_connection(("127.0.0.1", port))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=(one, other), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return proxy

    yield start
    for listener in listeners:
        listener.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)


@dataclass
class _Running:
    process: subprocess.Popen[str]
    path: Path
    log: Path

    def connect(self) -> socket.socket:
        caller = socket.socket(socket.AF_UNIX)
        caller.settimeout(120)
        caller.connect(str(self.path))
        return caller

    def say(self, data: bytes) -> bytes:
        """Send, say that this is all, and return the whole answer."""
        with self.connect() as caller:
            caller.sendall(data)
            caller.shutdown(socket.SHUT_WR)
            return _all(caller)

    @property
    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            for line in self.lines if self.log.exists() else []:
                if re.search(pattern, line["text"]):
                    return line["text"]
            time.sleep(0.05)
        pytest.fail(f"no line like {pattern} in {self.log.read_text()}")


Start = Callable[..., AbstractContextManager[_Running]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a forwarder on a Unix socket, with an environment of its own."""

    @contextmanager
    def running(to: str, *options: str, listen: str = "", **environment: str) -> Iterator[_Running]:
        path, log = tmp_path / "exit.sock", tmp_path / "forwarder.jsonl"
        command = [
            "-m",
            "client_app.connect.forwarder",
            "--listen",
            listen or f"unix:{path}",
            "--to",
            to,
        ]
        clean = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        process = subprocess.Popen(
            [sys.executable, *command, "--log", str(log), *options],
            env=clean | {"PYTHONPATH": str(ROOT)} | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            forwarder = _Running(process, path, log)
            forwarder.wait_for("^listening at ")
            yield forwarder
        finally:
            process.kill()
            process.communicate()

    return running


def _all(caller: socket.socket) -> bytes:
    answer = b""
    while data := caller.recv(65536):
        answer += data
    return answer


def test_bytes_and_the_end_of_each_way_pass_unchanged(
    start: Start, coordinator: _Coordinator
) -> None:
    data = os.urandom(3_000_000)
    with start(coordinator.address) as forwarder:
        assert forwarder.say(data) == b"you said " + data
        line = forwarder.wait_for("closed after")
    assert "3000000 bytes out, 3000009 bytes in" in line


def test_two_forwarders_connect_loopback_over_a_socket_to_the_coordinator(
    start: Start, coordinator: _Coordinator, tmp_path: Path
) -> None:
    """As in the containers: the courier's on loopback, the other with the network."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with start(coordinator.address) as outer:
        exit_socket = tmp_path / "outer.sock"
        outer.path.rename(exit_socket)  # the second one's own would have the same name
        outer.log.rename(tmp_path / "outer.jsonl")
        with start(f"unix:{exit_socket}", listen=f"127.0.0.1:{port}", HTTPS_PROXY="http://dead:1"):
            caller = socket.create_connection(("127.0.0.1", port), timeout=120)
            caller.sendall(b"hello")
            caller.shutdown(socket.SHUT_WR)
            assert _all(caller) == b"you said hello"
            caller.close()


def test_the_socket_is_for_its_user_and_group_only(start: Start, coordinator: _Coordinator) -> None:
    with start(coordinator.address) as forwarder:
        assert forwarder.path.stat().st_mode & 0o777 == 0o660


def test_a_proxy_is_asked_for_exactly_the_address_with_the_credentials(
    start: Start, coordinator: _Coordinator, start_proxy: Callable[..., _Proxy]
) -> None:
    proxy = start_proxy()
    port = coordinator.server_address[1]
    # The name does not exist: resolving it here, rather than at the proxy, would fail.
    name = f"fl.hospital.invalid:{port}"
    with start(name, HTTPS_PROXY=f"http://user:{SECRET}@{proxy.address}") as forwarder:
        assert forwarder.say(b"hello") == b"you said hello"
        log = forwarder.log.read_text()
        forwarder.process.terminate()
        log += forwarder.process.communicate(timeout=120)[1]
    expected = base64.b64encode(b"user:p@ss:word").decode()
    assert proxy.heads == [
        f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\nProxy-Authorization: Basic {expected}\r\n\r\n"
    ]
    assert f"through the proxy {proxy.address}" in log
    assert "p@ss" not in log
    assert SECRET not in log
    assert expected not in log


def test_no_proxy_is_honoured(
    start: Start, coordinator: _Coordinator, start_proxy: Callable[..., _Proxy]
) -> None:
    proxy = start_proxy()
    with start(
        coordinator.address, HTTPS_PROXY=f"http://{proxy.address}", NO_PROXY="a.example,127.0.0.1"
    ) as forwarder:
        assert forwarder.say(b"hello") == b"you said hello"
    assert proxy.heads == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "status 403; ask the proxy's operator to allow"),
        (
            b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\n\r\n",
            "status 407; set the credentials",
        ),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"x" * 300_000, "not HTTP"),
    ],
)
def test_a_proxy_that_refuses_is_named_once_with_what_to_do(
    answer: bytes,
    said: str,
    start: Start,
    coordinator: _Coordinator,
    start_proxy: Callable[..., _Proxy],
) -> None:
    proxy = start_proxy(answer)
    with start(coordinator.address, https_proxy=f"http://{proxy.address}") as forwarder:
        for _ in range(3):
            with pytest.raises(AssertionError):  # closed, one way or the other
                assert _attempt(forwarder)
        forwarder.wait_for(said)
        assert sum("can't be reached" in line["text"] for line in forwarder.lines) == 1
    assert coordinator.accepted == 0


def test_a_coordinator_that_is_away_is_named_and_found_again(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    with start(f"127.0.0.1:{address[1]}") as forwarder:
        assert not _attempt(forwarder)
        assert "can't be reached" in forwarder.wait_for("refused|Connect call failed")
        _Coordinator.allow_reuse_address = True
        with _Coordinator(address, _Coordinator.Handler) as back:
            threading.Thread(target=back.serve_forever, args=(0.05,), daemon=True).start()
            assert forwarder.say(b"again") == b"you said again"
            back.shutdown()
        forwarder.wait_for("can be reached again")


def test_a_connection_that_sends_nothing_does_not_reach_the_coordinator(
    start: Start, coordinator: _Coordinator
) -> None:
    """A health check connects and hangs up."""
    with start(coordinator.address) as forwarder:
        forwarder.connect().close()
        assert forwarder.say(b"hello") == b"you said hello"
    assert coordinator.accepted == 1


def test_one_connection_too_many_is_rejected_until_another_ends(
    start: Start, coordinator: _Coordinator
) -> None:
    with start(coordinator.address) as forwarder:
        callers = []
        for _ in range(_MAXIMUM_CONNECTIONS):
            callers.append(forwarder.connect())
            callers[-1].sendall(b"there?")
            assert callers[-1].recv(10) == b"yes"
        assert not _attempt(forwarder)
        forwarder.wait_for("rejected, there are too many")
        for caller in callers:
            caller.close()
        forwarder.wait_for(f"connection {_MAXIMUM_CONNECTIONS}: (closed|broken off)")
        assert forwarder.say(b"hello") == b"you said hello"


def test_a_signal_ends_it_and_removes_the_socket(start: Start, coordinator: _Coordinator) -> None:
    with start(coordinator.address) as forwarder, forwarder.connect() as caller:
        caller.sendall(b"there?")
        assert caller.recv(10) == b"yes"
        forwarder.process.terminate()
        assert forwarder.process.wait(timeout=120) == 0
        assert _all(caller) == b""
        assert not forwarder.path.exists()


def test_it_needs_nothing_but_python_itself() -> None:
    """Its image has nothing else installed."""
    code = (
        "import client_app.connect.forwarder, sys; print(*{m.split('.')[0] for m in sys.modules})"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    ).stdout.split()
    foreign = set(told) - set(sys.stdlib_module_names) - {"client_app", "protocol", "operation"}
    assert {name for name in foreign if not name.startswith("_")} == set()


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", ":80", "host:0", "host:65536", "a b:1", "u@h:1", "::1:80", "unix:x"],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        Place.parse(text)


@pytest.mark.parametrize("text", ["fl.example.org:8443", "10.0.0.1:443", "[::1]:443", "unix:/a/b"])
def test_an_address_is_written_as_it_was_read(text: str) -> None:
    assert str(Place.parse(text)) == text


@pytest.mark.parametrize(
    ("exceptions", "proxied"),
    [("", True), ("*", False), ("fl.example.org", False), (".example.org", False),
     ("example.org", False), ("ample.org", True), ("fl.example.org.evil", True)],
)  # fmt: skip
def test_which_addresses_need_no_proxy(exceptions: str, proxied: bool) -> None:
    environment = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": exceptions}
    upstream = Upstream.from_environment(Place.parse("fl.example.org:443"), environment)
    assert (upstream.proxy is not None) == proxied


@pytest.mark.parametrize("url", ["https://proxy:3128", "socks5://proxy", "http://", "http://h:x"])
def test_a_proxy_of_another_kind_is_refused_without_showing_its_password(url: str) -> None:
    secret = url.replace("//", "//user:geheim@")
    with pytest.raises(ValueError, match="HTTPS_PROXY must be") as refused:
        Proxy.parse(secret)
    assert "geheim" not in str(refused.value)


def _attempt(forwarder: _Running) -> bytes:
    """Return what a caller gets; nothing if it is rejected."""
    try:
        return forwarder.say(b"hello")
    except OSError:
        return b""
