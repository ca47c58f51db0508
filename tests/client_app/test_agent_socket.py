"""The agent as a process: whom its socket is for, and Flower's way to it."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from client_app import courier
from operation.unix_socket import SocketTaken, listening
from protocol.records import from_records, to_records
from tests.client_app.conftest import Agent
from tests.processes import wait_until

# --- the socket -----------------------------------------------------------------------------------


def test_the_socket_is_for_the_agent_and_one_group(stub: Agent) -> None:
    status = stub.socket.stat()

    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())


@pytest.mark.timing
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
                looks = len(seen)
                wait_until(lambda looks=looks: len(seen) > looks)
    finally:
        os.umask(before)
        done.set()
        watcher.join()
    assert set(seen) == {0o660}


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
def test_an_agent_outside_the_group_is_an_error_that_says_to_enter_it(place: Path) -> None:
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
