"""The agent as a process: its limits, its one worker, its socket, how it ends and comes back."""

import hashlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from client_app import courier
from client_app.configuration import Configuration
from client_app.hospital import Hospital
from client_app.listener import SocketTaken, listening
from client_app.socket_client import AgentTurnedAway, AgentUnreachable, ask, health
from client_app.store import MappingStore
from learning.local_data import load_own
from protocol.descriptor import Descriptor
from protocol.messages import (
    Announcement,
    Carries,
    Refusal,
    RefusalCode,
    SetUp,
    Trained,
    TrainLeg,
    decode_reply,
    sign_request,
)
from protocol.records import from_records, to_records

ROOT = Path(__file__).parents[2]
STUB = Path(__file__).with_name("stub_agent.py")
MAXIMUM = 100_000
Agent = Any  # these two: tests/client_app/conftest.py
Enrolled = Any
Start = Callable[..., AbstractContextManager[Agent]]


@pytest.fixture(scope="module")
def stub(start: Start, new_folder: Callable[[], Path]) -> Iterator[Agent]:
    """One agent for all tests that leave it as it was."""
    with _stub(start, new_folder()) as agent:
        yield agent


def _stub(start: Start, folder: Path) -> AbstractContextManager[Agent]:
    path = folder / "agent.sock"
    return start([str(STUB), str(path), str(MAXIMUM), str(folder / "log")], path)


def _worked(agent: Agent) -> list[str]:
    """Return what the stub did, in order."""
    log = agent.socket.with_name("log")
    return log.read_text().splitlines() if log.exists() else []


# --- what may come in -----------------------------------------------------------------------------


def test_a_request_is_answered_byte_for_byte(stub: Agent) -> None:
    request = bytes(range(256)) * 100

    assert ask(str(stub.socket), request) == b"answer to " + request


def test_its_health_is_its_name_its_roster_and_its_version(stub: Agent) -> None:
    assert health(str(stub.socket)) == {"name": "stub", "roster": "AAAA BBBB", "version": "1.0"}


def test_a_request_that_says_it_is_too_long_is_turned_away_unread(stub: Agent) -> None:
    answer = _talk(stub, _head(f"Content-Length: {2**60}"))  # and not a byte of it

    assert answer.startswith(b"HTTP/1.1 413 ")
    with pytest.raises(AgentTurnedAway, match="413"):
        ask(str(stub.socket), bytes(MAXIMUM + 1))


def test_a_request_without_a_length_is_cut_off_at_the_limit(stub: Agent) -> None:
    chunk = b"%x\r\n%s\r\n" % (20_000, bytes(20_000))
    taken = 0
    with _connected(stub) as connection:
        connection.sendall(_head("Transfer-Encoding: chunked"))
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
    assert _talk(stub, _head("Transfer-Encoding: chunked"), chunked).startswith(b"HTTP/1.1 200 ")


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
def test_tricks_with_headers_are_turned_away(case: str, stub: Agent) -> None:
    lines, status = TRICKS[case]
    before = _worked(stub)

    answer = _talk(stub, _head(*lines), b"0\r\n\r\n")

    assert answer.split(b" ")[1] in {str(status).encode(), b"400"}
    assert _worked(stub) == before
    assert health(str(stub.socket))["name"] == "stub"


@pytest.mark.parametrize(
    "target", ["/", "/docs", "/redoc", "/openapi.json", "/v1/request/", "/v1", "/v1/../v1/health"]
)
def test_there_is_nothing_else_to_ask_for(target: str, stub: Agent) -> None:
    answer = _talk(stub, f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.1 404 ")


def test_an_error_at_the_hospital_tells_nothing(stub: Agent) -> None:
    answer = _talk(stub, _head("Content-Length: 5", "Connection: close"), b"raise")

    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"private" not in answer
    assert b"PATIENT" not in answer
    assert b"Error" not in answer.replace(b"Internal Server Error", b"")


def test_answers_do_not_say_who_serves_them(stub: Agent) -> None:
    answer = _talk(stub, _head("Content-Length: 1", "Connection: close"), b"x")

    head = answer.split(b"\r\n\r\n")[0].lower().split(b"\r\n")[1:]
    names = {line.split(b":")[0] for line in head}
    assert names == {b"content-length", b"content-type", b"connection"}


# --- one at a time, and twins together ------------------------------------------------------------


def test_a_twin_joins_the_one_at_work_while_health_answers(stub: Agent, place: Path) -> None:
    request = f"wait {place / 'go'}".encode()
    with ThreadPoolExecutor() as threads:
        twins = [threads.submit(ask, str(stub.socket), request) for _ in range(3)]
        _until(lambda: f"begins {request.decode()}" in _worked(stub))
        time.sleep(0.2)  # for the others to arrive
        assert health(str(stub.socket))["name"] == "stub"
        assert not any(twin.done() for twin in twins)
        (place / "go").touch()
        answers = [twin.result(timeout=10) for twin in twins]

    assert answers == [b"answer to " + request] * 3
    assert _worked(stub).count(f"begins {request.decode()}") == 1


def test_different_requests_wait_for_each_other(stub: Agent, place: Path) -> None:
    first, second = f"wait {place / 'go'}".encode(), b"second"
    with ThreadPoolExecutor() as threads:
        one = threads.submit(ask, str(stub.socket), first)
        _until(lambda: f"begins {first.decode()}" in _worked(stub))
        two = threads.submit(ask, str(stub.socket), second)
        time.sleep(0.2)
        assert not two.done()
        (place / "go").touch()
        one.result(timeout=10)
        two.result(timeout=10)

    lines = _worked(stub)
    assert lines[-4:] == [
        f"begins {first.decode()}",
        f"ends {first.decode()}",
        "begins second",
        "ends second",
    ]


def test_too_many_at_once_are_told_to_come_back_and_couriers_do(stub: Agent, place: Path) -> None:
    requests = [f"wait {place / 'go'}{' ' * n}".encode() for n in range(6)]
    with ThreadPoolExecutor() as threads:
        asked = [threads.submit(ask, str(stub.socket), request) for request in requests]
        _until(lambda: _status(stub) == 503)
        (place / "go").touch()
        answers = [request.result(timeout=10) for request in asked]

    assert answers == [b"answer to " + request for request in requests]


def test_whoever_hangs_up_does_not_stop_the_work(stub: Agent, place: Path) -> None:
    request = f"wait {place / 'go'}".encode()
    with _connected(stub) as connection:
        connection.sendall(_head(f"Content-Length: {len(request)}") + request)
        _until(lambda: f"begins {request.decode()}" in _worked(stub))
    with ThreadPoolExecutor() as threads:
        again = threads.submit(ask, str(stub.socket), request)
        time.sleep(0.2)
        (place / "go").touch()
        assert again.result(timeout=10) == b"answer to " + request
    assert _worked(stub).count(f"begins {request.decode()}") == 1


# --- the socket -----------------------------------------------------------------------------------


def test_the_socket_is_for_the_agent_and_one_group(stub: Agent) -> None:
    status = stub.socket.stat()

    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())


def test_the_socket_is_private_from_its_first_moment_whatever_the_umask(place: Path) -> None:
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            try:
                seen.append(stat.S_IMODE((place / "agent.sock").stat().st_mode))
            except FileNotFoundError:
                continue

    watcher = threading.Thread(target=watch)
    before = os.umask(0)
    watcher.start()
    try:
        for _ in range(50):
            with listening(place / "agent.sock", os.getegid()):
                pass
    finally:
        os.umask(before)
        done.set()
        watcher.join()
    assert set(seen) <= {0o660}


def test_a_dead_agents_socket_is_replaced_and_a_living_ones_is_not(place: Path) -> None:
    path = place / "agent.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()

    with listening(path, os.getegid()):
        with pytest.raises(SocketTaken, match="another process answers"):
            listening(path, os.getegid()).__enter__()
        assert path.exists()
    assert not path.exists()


def test_what_is_not_a_socket_is_left_alone(place: Path) -> None:
    (place / "agent.sock").write_text("something else")

    with pytest.raises(SocketTaken, match="is not a socket"):
        listening(place / "agent.sock", os.getegid()).__enter__()

    assert (place / "agent.sock").read_text() == "something else"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_agent_outside_the_group_is_told_to_enter_it(place: Path) -> None:
    os.chown(place, 54321, 54321)
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(54321)
        os.setuid(54321)
        try:
            listening(place / "agent.sock", 54322).__enter__()
        except SocketTaken as error:
            os._exit(42 if "not in the group 54322" in str(error) else 43)
        os._exit(44)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
    assert not (place / "agent.sock").exists()


# --- Flower's way to it ---------------------------------------------------------------------------


def test_the_client_app_carries_a_message_to_the_agent_of_its_node(stub: Agent) -> None:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    context = Context(1, 100, {"agent-socket": str(stub.socket)}, RecordDict(), {})

    reply = courier.app(Message(to_records(b"request \x00\xff"), 100, "train"), context)

    assert from_records(reply.content) == b"answer to request \x00\xff"


# --- how it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_finishes_its_request_and_removes_its_socket(
    number: signal.Signals, start: Start, place: Path
) -> None:
    with _stub(start, place) as agent, ThreadPoolExecutor() as threads:
        request = f"wait {place / 'go'}".encode()
        asked = threads.submit(ask, str(agent.socket), request)
        _until(lambda: len(_worked(agent)) == 1)
        agent.process.send_signal(number)
        time.sleep(0.3)
        (place / "go").touch()

        assert asked.result(timeout=10) == b"answer to " + request
        assert agent.process.wait(timeout=10) == 0
        assert not agent.socket.exists()
        assert agent.log == ""


@pytest.mark.slow
def test_told_to_stop_it_does_not_wait_for_a_long_leg(start: Start, place: Path) -> None:
    with _stub(start, place) as agent, ThreadPoolExecutor() as threads:
        asked = threads.submit(ask, str(agent.socket), b"wait /for/ever", patience=1.0)
        _until(lambda: len(_worked(agent)) == 1)

        assert agent.stop() == 0  # within Docker's ten seconds, or `stop` would not matter
        assert not agent.socket.exists()
        assert "Traceback" not in agent.log
        with pytest.raises(AgentUnreachable):
            asked.result(timeout=10)


def test_a_courier_outlasts_a_restart_of_its_agent(start: Start, place: Path) -> None:
    request = f"wait {place / 'go'}".encode()
    with ThreadPoolExecutor() as threads:
        with _stub(start, place) as agent:
            asked = threads.submit(ask, str(agent.socket), request)
            _until(lambda: len(_worked(agent)) == 1)
            agent.kill()
        (place / "go").touch()
        with _stub(start, place):
            assert asked.result(timeout=20) == b"answer to " + request


def test_a_courier_without_an_agent_gives_up_and_names_no_path(place: Path) -> None:
    with pytest.raises(AgentUnreachable) as error:
        ask(str(place / "agent.sock"), b"request", patience=0.3)

    assert str(error.value) == "the hospital's agent does not answer (FileNotFoundError)"


# --- the real hospital behind it ------------------------------------------------------------------

ROUNDS = 1_500


def _set_up(hospital: Enrolled) -> tuple[bytes, bytes]:
    """Return the requests that open an experiment and ask for a leg that takes a while."""
    descriptor = Descriptor(
        experiment="e1",
        rounds=ROUNDS,
        daisy_period=1,
        aggregation_period=1,
        init="own",
        shape=(3,),
        classes=2,
        training={"model": "mlp", "model-options": '{"hidden": [4]}', "batch-size": 4},
        training_seed=bytes(32),
        sealed=True,
        roster=hospital.roster().digest,
    )
    leg = TrainLeg(
        experiment="e1",
        leg=1,
        first_round=0,
        local_rounds=ROUNDS,
        carries=Carries.NOTHING,
        recipient=None,
    )
    set_up = SetUp(experiment="e1", payload=descriptor.to_bytes())
    return sign_request(set_up, hospital.coordinator), sign_request(leg, hospital.coordinator)


@pytest.mark.slow
def test_a_killed_agent_comes_back_and_repeats_its_leg(
    enrolled: Enrolled, serve: Callable[[Enrolled], AbstractContextManager[Agent]]
) -> None:
    set_up, leg = _set_up(enrolled)
    with ThreadPoolExecutor() as threads:
        with serve(enrolled) as agent:
            assert isinstance(decode_reply(ask(str(agent.socket), set_up)), Announcement)
            announced = ask(str(agent.socket), set_up)
            idle = _processor_ticks(agent)
            asked = threads.submit(ask, str(agent.socket), leg, patience=60.0)
            _until(lambda: _processor_ticks(agent) >= idle + 5)
            assert not asked.done()
            agent.kill()
        assert agent.socket.exists()  # it had no time to remove it
        with serve(enrolled) as agent:
            answer = asked.result(timeout=60)
            assert ask(str(agent.socket), leg) == answer
            assert ask(str(agent.socket), set_up) == announced
            assert _internet_sockets(agent.process.pid) == []
            second = _feddc("serve", enrolled)
            assert agent.stop() == 0
            assert not agent.socket.exists()

    trained = decode_reply(answer)
    assert isinstance(trained, Trained)
    assert trained.payload == _undisturbed(enrolled, set_up, leg).payload
    assert second.returncode == 2
    assert f"another agent (process {agent.process.pid})" in second.stderr
    audit = _feddc("audit", enrolled)
    assert audit.returncode == 0, audit.stderr
    # Two set-ups, the leg, its repetition, and one more set-up; the killed attempt left no trace.
    assert "5 lines, all of them whole" in audit.stdout
    assert hashlib.sha256(leg).hexdigest() in _feddc("audit", enrolled, "--json").stdout


def _undisturbed(hospital: Enrolled, set_up: bytes, leg: bytes) -> Trained:
    """Return what a hospital with the same data answers that was never killed."""
    configuration = Configuration.read(hospital.folder.configuration)
    other = Hospital(
        "St Mary",
        load_own(configuration.local, "St Mary"),
        MappingStore({}),
        identity=hospital.folder.identity(),
        roster=hospital.roster(),
        policy=configuration.policy,
    )
    other.answer(set_up)
    trained = decode_reply(other.answer(leg))
    assert isinstance(trained, Trained)
    return trained


def _processor_ticks(agent: Agent) -> int:
    """Return how long the process has computed so far, in hundredths of a second."""
    fields = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11])


def _feddc(command: str, hospital: Enrolled, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            *(sys.executable, "-m", "lab.cli", "hospital", command),
            *("--folder", str(hospital.folder.path), *more),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def _internet_sockets(pid: int) -> list[str]:
    """Return the process's sockets that are in one of the kernel's tables of the internet's."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue  # a connection that was just closed
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    assert inodes  # the Unix socket at least
    tables = ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "packet")
    found = []
    for table in tables:
        path = Path(f"/proc/{pid}/net/{table}")
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        found += [line for line in lines if inodes & set(line.split())]
    return found


# --- how the tests talk ---------------------------------------------------------------------------


def _head(*lines: str) -> bytes:
    given = {line.split(":")[0].lower() for line in lines}
    usual = {"host": "Host: agent", "content-type": "Content-Type: application/octet-stream"}
    headers = [text for name, text in usual.items() if name not in given]
    return "\r\n".join(["POST /v1/request HTTP/1.1", *headers, *lines, "", ""]).encode()


def _connected(agent: Agent) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(str(agent.socket))
    return connection


def _talk(agent: Agent, *parts: bytes) -> bytes:
    """Send the parts and return the beginning of what comes back."""
    answer = b""
    with _connected(agent) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        while b"\r\n\r\n" not in answer and (piece := connection.recv(65536)):
            answer += piece
    return answer


def _status(agent: Agent) -> int:
    return int(_talk(agent, _head("Content-Length: 4", "Connection: close"), b"room")[9:12])


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_forged_request_is_refused_by_the_real_hospital(enrolled: Enrolled) -> None:
    configuration = Configuration.read(enrolled.folder.configuration)
    hospital = Hospital(
        "St Mary",
        load_own(configuration.local, "St Mary"),
        MappingStore({}),
        identity=enrolled.folder.identity(),
        roster=enrolled.roster(),
        policy=configuration.policy,
    )
    set_up, _ = _set_up(enrolled)

    reply = decode_reply(hospital.answer(set_up[:-1] + bytes([set_up[-1] ^ 1])))

    assert isinstance(reply, Refusal)
    assert reply.code is RefusalCode.BAD_SIGNATURE
