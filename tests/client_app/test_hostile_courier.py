"""A courier that wants more than to carry: another user, in the socket's group and no other.

The coordinator ships the courier's code, so it may try anything its user can do at all.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from client_app.agent.hardening import harden_process
from client_app.connect.agent_client import ask
from protocol.message_bytes import decode_signed_reply, sign_request
from protocol.messages import Hello, Introduction
from tests.client_app.conftest import ROOT, Agent, Enrolled

COURIER, GROUP = 54_321, 54_322

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# What it needs is imported while it may still read everything; then there is no way back.
AS_COURIER = """
import ctypes, json, os, pathlib, signal, socket, sys
from client_app.connect.agent_client import ask, health
group, user = (int(number) for number in sys.argv[1:3])
os.setgroups([])
os.setresgid(group, group, group)
os.setresuid(user, user, user)
assert os.getresuid() == (user,) * 3 and os.getgroups() in ([], [group])

def denied(attempt):
    try:
        attempt()
    except PermissionError:
        return True
    return False
"""


@pytest.fixture(scope="module")
def hospital(enrol: Callable[[], Enrolled]) -> Enrolled:
    made = enrol()
    made.set("group", f'"{GROUP}"')
    os.chown(made.socket.parent, -1, GROUP)
    return made


@pytest.fixture(scope="module")
def agent(
    hospital: Enrolled, serve: Callable[[Enrolled], AbstractContextManager[Agent]]
) -> Iterator[Agent]:
    with serve(hospital) as running:
        yield running


def as_courier(script: str, *arguments: object, group: int = GROUP) -> Any:
    """Run a script as the courier's user and return what it printed as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", AS_COURIER + script, str(group), str(COURIER), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_can_ask_and_gets_answers(agent: Agent, hospital: Enrolled) -> None:
    request = sign_request(
        Hello(), hospital.coordinator, study=hospital.roster().study, hospital="St Mary"
    )

    told = as_courier(
        "path, request = sys.argv[3], bytes.fromhex(sys.argv[4])\n"
        "print(json.dumps([health(path), ask(path, request).hex()]))\n",
        agent.socket,
        request.hex(),
    )

    assert told[0]["name"] == "St Mary"
    reply = decode_signed_reply(bytes.fromhex(told[1]))
    assert isinstance(reply, Introduction)
    assert reply.hospital == "St Mary"


def test_another_user_outside_the_group_can_not_even_ask(agent: Agent) -> None:
    assert as_courier(
        "print(json.dumps(denied(lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[3]))))\n",
        agent.socket,
        group=COURIER,
    )


def test_it_can_read_and_write_nothing_of_the_hospitals(agent: Agent, hospital: Enrolled) -> None:
    files = sorted(path for path in hospital.folder.path.rglob("*") if path.is_file())
    names = {path.name for path in files}
    assert {"identity.key", "roster", "memory.sqlite", "hospital.toml", "records.csv"} <= names
    secret = [path for path in files if path.suffix != ".json"]  # the card is meant for others
    folders = [hospital.folder.path, hospital.folder.state, hospital.folder.path / "data"]

    reached = as_courier(
        "files, folders = json.loads(sys.argv[3]), json.loads(sys.argv[4])\n"
        "reached = [f for f in files if not denied(lambda: open(f, 'rb'))]\n"
        "reached += [f for f in files if not denied(lambda: open(f, 'ab'))]\n"
        "reached += [f for f in folders if not denied(lambda: os.listdir(f))]\n"
        "reached += [f for f in folders if not denied(lambda: open(f + '/new', 'wb'))]\n"
        "print(json.dumps(reached))\n",
        json.dumps([str(path) for path in secret]),
        json.dumps([str(path) for path in folders]),
    )

    assert reached == []


def test_it_can_not_put_its_own_socket_in_the_agents_place(agent: Agent) -> None:
    assert (
        as_courier(
            "path = sys.argv[3]\n"
            "attempts = [lambda: os.unlink(path), lambda: os.rename(path, path + '.old'),\n"
            "    lambda: socket.socket(socket.AF_UNIX).bind(path + '.new'),\n"
            "    lambda: os.chmod(path, 0o666), lambda: os.chmod(os.path.dirname(path), 0o777)]\n"
            "print(json.dumps([denied(attempt) for attempt in attempts]))\n",
            agent.socket,
        )
        == [True] * 5
    )


def test_it_can_not_read_the_agents_memory(agent: Agent) -> None:
    assert (
        as_courier(
            "process = f'/proc/{sys.argv[3]}'\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "libc.ptrace.argtypes = [ctypes.c_long] * 4\n"
            "def trace():\n"
            "    if libc.ptrace(16, int(sys.argv[3]), 0, 0):\n"
            "        raise OSError(ctypes.get_errno(), 'ptrace')\n"
            "attempts = [trace, lambda: os.kill(int(sys.argv[3]), signal.SIGTERM)]\n"
            "for name in ('mem', 'environ', 'maps', 'fd', 'cwd', 'exe', 'root', 'io', 'stack'):\n"
            "    path = f'{process}/{name}'\n"
            "    attempts.append(lambda path=path: os.listdir(path) if path.endswith('fd')\n"
            "        else os.readlink(path) if path.endswith(('cwd', 'exe', 'root'))\n"
            "        else open(path, 'rb').read(1))\n"
            "print(json.dumps([denied(attempt) for attempt in attempts]))\n",
            agent.process.pid,
        )
        == [True] * 11
    )


def test_a_crash_writes_no_memory_to_the_disk(agent: Agent) -> None:
    limits = Path(f"/proc/{agent.process.pid}/limits").read_text()
    (core,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))

    assert core.split()[4:6] == ["0", "0"]


@pytest.mark.parametrize("hardened", [False, True])
def test_not_even_another_process_of_the_same_user_can_read_its_memory(hardened: bool) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(GROUP, GROUP, GROUP)
        os.setresuid(COURIER, COURIER, COURIER)
        # A process that has changed its user is kept to itself anyway; an agent's has not.
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
        if hardened:
            harden_process()
        os.write(writer, b"x")
        signal.pause()
    try:
        os.read(reader, 1)
        look = f"open('/proc/{child}/environ', 'rb').read(1)"
        assert as_courier(f"print(json.dumps(denied(lambda: {look})))\n") is hardened
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def test_the_socket_belongs_to_the_group_and_answers_are_all_that_leaves(
    agent: Agent, hospital: Enrolled
) -> None:
    status = agent.socket.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, GROUP, 0o660)

    reply = ask(str(agent.socket), b"garbage " * 1000)

    for secret in (b"PATIENT", str(hospital.folder.path).encode(), b"Traceback"):
        assert secret not in reply
        assert secret.decode() not in agent.log.replace(f"ready at {agent.socket}", "")
