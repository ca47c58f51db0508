"""An evil coordinator against a real agent: its memory, its disk, and a backup put back."""

import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from client_app.connect.agent_client import AgentTurnedAway
from client_app.hospital_folder import HospitalFolder
from client_app.state.audit_report import read_audit
from protocol.messages import Hello, Introduction, RefusalCode, Request
from tests.attacks.siege import MAXIMUM, Code, Siege
from tests.attacks.study import VICTIM, Agent, expect, refused

# --- memory and disk ------------------------------------------------------------------------------


def test_a_body_of_two_gigabytes_is_not_read(siege: Siege) -> None:
    head = "POST /v1/request HTTP/1.1\r\nHost: agent\r\nContent-Type: application/octet-stream\r\n"
    before = memory_of(siege.agent)

    assert "413" in sent_raw(siege.agent, f"{head}Content-Length: {2 << 30}\r\n\r\n", bytes(100))
    endless = f"{head}Transfer-Encoding: chunked\r\n\r\n"
    piece = b"%x\r\n%s\r\n" % (1 << 16, bytes(1 << 16))
    assert "413" in sent_raw(siege.agent, endless, piece * 64)
    with pytest.raises(AgentTurnedAway):
        siege.study.ask(VICTIM, bytes(MAXIMUM + 1))

    assert memory_of(siege.agent) < before + 20 * MAXIMUM
    siege.running().leg()
    lines, verdict = read_audit(siege.agent.folder)
    refusals = [json.loads(line)["reply"].get("refusal") for line in lines]
    assert verdict.broken is None
    assert refusals.count(RefusalCode.TOO_LARGE) <= 1  # one line a minute, with their number


def sent_raw(agent: Agent, head: str, body: bytes) -> str:
    """Send bytes to the socket until it hangs up, and return the first line it answered."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(180)
        connection.connect(agent.socket)

        def send() -> None:
            with suppress(OSError):  # it hangs up, as it should
                connection.sendall(head.encode() + body)

        sending = threading.Thread(target=send)
        sending.start()
        answer = connection.recv(100).decode()
        sending.join(timeout=180)
    return answer.partition("\r\n")[0]


def memory_of(agent: Agent) -> int:
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_junk_costs_a_short_line_whatever_its_length(siege: Siege) -> None:
    before, _ = read_audit(siege.agent.folder)
    for length in (1, 100, 10_000, 900_000):
        siege.refuses(os.urandom(length), Code.MALFORMED)
    for name in ("e" * 64, "e"):
        siege.refuses(siege.running().request(VICTIM, experiment=name), Code.UNKNOWN_EXPERIMENT)

    after, _ = read_audit(siege.agent.folder)
    assert max(map(len, after[len(before) :])) < 600
    expect(Introduction, siege.study.ask(VICTIM, Hello()))


# --- an agent rolled back -------------------------------------------------------------------------


@pytest.mark.slow
def test_an_agent_rolled_back_stops(siege: Siege) -> None:
    experiment = siege.running()
    siege.experiment = None
    with rolled_back_twin(siege) as (twin, look_away):
        experiment.leg()  # the twin does not know of it
        honest = experiment.request(VICTIM)
        siege.study.hospitals[VICTIM] = twin
        # What comes first also writes lines: the log must not catch up with what was seen.
        for _ in range(3):
            look_away(Hello())

        for _ in range(3):
            assert refused(look_away(honest)) == Code.ROLLED_BACK
        assert refused(look_away(Hello())) == Code.ROLLED_BACK
        lines, verdict = read_audit(twin.folder)
        assert verdict.broken is None
        assert json.loads(lines[-1])["reply"]["refusal"] == Code.ROLLED_BACK

        siege.study.hospitals[VICTIM] = siege.agent
        experiment.leg(**{VICTIM: honest})
    siege.experiment = experiment


@contextmanager
def rolled_back_twin(siege: Siege) -> Iterator[tuple[Agent, Callable[[Request], Any]]]:
    """Start an agent from a backup of the victim's folder, and a way to ask it unnoticed."""
    folder = siege.agent.folder.path
    copy = folder.parent / "b"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("agent.sock", "*.lock"))
    twin = Agent(HospitalFolder(copy))
    twin.start()
    heads = siege.study.heads

    def ask_unnoticed(request: Request) -> Any:
        before = heads[VICTIM]
        reply = siege.study.ask(VICTIM, request)
        heads[VICTIM] = before  # what an honest coordinator keeps: the highest it has seen
        return reply

    try:
        yield twin, ask_unnoticed
    finally:
        siege.study.hospitals[VICTIM] = siege.agent
        twin.stop()
