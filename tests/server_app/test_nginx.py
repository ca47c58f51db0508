"""The proxy as an outsider sees it: what gets in to the SuperLink, and what does not."""

import socket
import ssl
from pathlib import Path

import pytest

from server_app.study.study_folder import Study
from tests.server_app.conftest import HOST, Coordinator


def ask(study: Study, request: bytes, *, protocols: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
    """Send raw bytes to the proxy as an outsider would; return the status line and the rest."""
    context = ssl.create_default_context(cafile=str(study.authority))
    if protocols:
        context.set_alpn_protocols(list(protocols))
    with (
        socket.create_connection(("127.0.0.1", study.address.port), timeout=120) as plain,
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


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nothing_older_than_tls_1_3_is_spoken(
    version: ssl.TLSVersion, coordinator: Coordinator
) -> None:
    context = ssl.create_default_context(cafile=str(coordinator.study.authority))
    context.minimum_version = context.maximum_version = version
    place = ("127.0.0.1", coordinator.study.address.port)
    with socket.create_connection(place, timeout=120) as plain:
        if version is ssl.TLSVersion.TLSv1_3:
            with context.wrap_socket(plain, server_hostname=HOST) as secure:
                assert secure.version() == "TLSv1.3"
        else:
            with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
                context.wrap_socket(plain, server_hostname=HOST)


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
