"""The agent as a process: what may come in, and that it works on one thing at a time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from client_app.connect.agent_client import AgentTurnedAway, ask, health
from tests.client_app.agent_socket import arrived, connected, http_head, status, talk, worked
from tests.client_app.conftest import MAXIMUM, Agent
from tests.processes import wait_until

# --- what may come in -----------------------------------------------------------------------------


def test_a_request_is_answered_byte_for_byte(stub: Agent) -> None:
    request = bytes(range(256)) * 100

    assert ask(str(stub.socket), request) == b"answer to " + request


def test_its_health_is_its_name_its_roster_and_its_version(stub: Agent) -> None:
    assert health(str(stub.socket)) == {"name": "stub", "roster": "AAAA BBBB", "version": "1.0"}


def test_a_request_that_says_it_is_too_long_is_rejected_unread(stub: Agent) -> None:
    answer = talk(stub, http_head(f"Content-Length: {2**60}"))  # and not a byte of it

    assert answer.startswith(b"HTTP/1.1 413 ")
    with pytest.raises(AgentTurnedAway, match="413"):
        ask(str(stub.socket), bytes(MAXIMUM + 1))


def test_a_request_without_a_length_is_cut_off_at_the_limit(stub: Agent) -> None:
    chunk = b"%x\r\n%s\r\n" % (20_000, bytes(20_000))
    taken = 0
    with connected(stub) as connection:
        connection.sendall(http_head("Transfer-Encoding: chunked"))
        try:
            while taken < 100 * MAXIMUM:
                connection.sendall(chunk)
                taken += 20_000
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    assert taken < 20 * MAXIMUM  # what fits into the system's buffers


def test_exactly_the_limit_is_served(stub: Agent) -> None:
    request = bytes(MAXIMUM)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (MAXIMUM, request)

    assert ask(str(stub.socket), request) == b"answer to " + request
    assert talk(stub, http_head("Transfer-Encoding: chunked"), chunked).startswith(b"HTTP/1.1 200 ")


TRICKS = {
    "two lengths": (["Content-Length: 5", "Content-Length: 6"], 400),
    "a negative length": (["Content-Length: -1"], 400),
    "a length in words": (["Content-Length: five"], 400),
    "a length and chunks": (["Content-Length: 5", "Transfer-Encoding: chunked"], 400),
    "an unknown encoding": (["Transfer-Encoding: gzip"], 501),
    "endless headers": ([f"X-{n}: {'x' * 9_999}" for n in range(200)], 400),
    "another type": (["Content-Type: application/json", "Content-Length: 5"], 415),
}


@pytest.mark.parametrize("case", TRICKS)
def test_tricks_with_headers_are_rejected(case: str, stub: Agent) -> None:
    lines, status = TRICKS[case]
    before = worked(stub)

    answer = talk(stub, http_head(*lines), b"0\r\n\r\n")

    assert answer.split(b" ")[1] in {str(status).encode(), b"400"}
    assert worked(stub) == before
    assert health(str(stub.socket))["name"] == "stub"


@pytest.mark.parametrize(
    "target", ["/", "/docs", "/redoc", "/openapi.json", "/v1/request/", "/v1", "/v1/../v1/health"]
)
def test_there_is_nothing_else_to_ask_for(target: str, stub: Agent) -> None:
    answer = talk(stub, f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.1 404 ")


def test_an_error_at_the_hospital_reveals_nothing(stub: Agent) -> None:
    answer = talk(stub, http_head("Content-Length: 5", "Connection: close"), b"raise")

    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"private" not in answer
    assert b"PATIENT" not in answer
    assert b"Error" not in answer.replace(b"Internal Server Error", b"")


def test_answers_do_not_say_who_serves_them(stub: Agent) -> None:
    answer = talk(stub, http_head("Content-Length: 1", "Connection: close"), b"x")

    head = answer.split(b"\r\n\r\n")[0].lower().split(b"\r\n")[1:]
    names = {line.split(b":")[0] for line in head}
    assert names == {b"content-length", b"content-type", b"connection"}


# --- one at a time, and twins together ------------------------------------------------------------


@pytest.mark.timing
def test_a_repeated_request_shares_the_work_while_health_answers(stub: Agent, place: Path) -> None:
    request = f"wait {place / 'go'}".encode()
    with ThreadPoolExecutor() as threads:
        twins = [threads.submit(ask, str(stub.socket), request) for _ in range(3)]
        wait_until(lambda: arrived(stub, request) == 3)
        assert health(str(stub.socket))["name"] == "stub"
        assert not any(twin.done() for twin in twins)
        (place / "go").touch()
        answers = [twin.result(timeout=60) for twin in twins]

    assert answers == [b"answer to " + request] * 3
    assert worked(stub).count(f"begins {request.decode()}") == 1


@pytest.mark.timing
def test_different_requests_wait_for_each_other(stub: Agent, place: Path) -> None:
    first, second = f"wait {place / 'go'}".encode(), b"second"
    with ThreadPoolExecutor() as threads:
        one = threads.submit(ask, str(stub.socket), first)
        wait_until(lambda: f"begins {first.decode()}" in worked(stub))
        two = threads.submit(ask, str(stub.socket), second)
        wait_until(lambda: arrived(stub, second) == 1)
        assert not two.done()
        (place / "go").touch()
        one.result(timeout=60)
        two.result(timeout=60)

    lines = worked(stub)
    assert lines[-4:] == [
        f"begins {first.decode()}",
        f"ends {first.decode()}",
        "begins second",
        "ends second",
    ]


@pytest.mark.timing
def test_too_many_at_once_are_rejected_and_couriers_retry(stub: Agent, place: Path) -> None:
    requests = [f"wait {place / 'go'}{' ' * n}".encode() for n in range(6)]
    with ThreadPoolExecutor() as threads:
        asked = [threads.submit(ask, str(stub.socket), request) for request in requests]
        wait_until(lambda: status(stub) == 503)
        (place / "go").touch()
        answers = [request.result(timeout=60) for request in asked]

    assert answers == [b"answer to " + request for request in requests]


@pytest.mark.timing
def test_a_caller_that_hangs_up_does_not_stop_the_work(stub: Agent, place: Path) -> None:
    request = f"wait {place / 'go'}".encode()
    with connected(stub) as connection:
        connection.sendall(http_head(f"Content-Length: {len(request)}") + request)
        wait_until(lambda: f"begins {request.decode()}" in worked(stub))
    with ThreadPoolExecutor() as threads:
        again = threads.submit(ask, str(stub.socket), request)
        wait_until(lambda: arrived(stub, request) == 2)
        (place / "go").touch()
        assert again.result(timeout=60) == b"answer to " + request
    assert worked(stub).count(f"begins {request.decode()}") == 1
