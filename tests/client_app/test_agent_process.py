"""The agent as a process: how it ends, and how it comes back."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from client_app.configuration import Configuration
from client_app.connect.agent_client import AgentUnreachable, ask, health
from client_app.hospital.hospital import Hospital
from client_app.hospital_data import load_partition
from client_app.state.sqlite_store import SqliteStore
from client_app.state.store import STREAM_SECRET, MappingStore
from learning.data import Examples, Partition
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Carries, Refusal, RefusalCode, Trained, TrainLeg
from tests.attacks.study import Agent as BehindSocket
from tests.attacks.study import Experiment, Study, in_process
from tests.client_app.agent_socket import worked
from tests.client_app.conftest import ROOT, Agent, Enrolled, Start, start_stub
from tests.fake_clock import FakeClock
from tests.processes import wait_until

# --- how it ends ----------------------------------------------------------------------------------


@pytest.mark.timing
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish_its_request_and_removes_its_socket(
    number: signal.Signals, start: Start, place: Path
) -> None:
    with start_stub(start, place) as agent, ThreadPoolExecutor() as threads:
        request = f"wait {place / 'go'}".encode()
        asked = threads.submit(ask, str(agent.socket), request)
        wait_until(lambda: len(worked(agent)) == 1)
        agent.process.send_signal(number)
        wait_until(lambda: not _listens(agent.socket))
        (place / "go").touch()

        assert asked.result(timeout=60) == b"answer to " + request
        assert agent.process.wait(timeout=60) == 0
        assert not agent.socket.exists()
        assert agent.log == ""


@pytest.mark.slow
@pytest.mark.timing
def test_a_signal_does_not_wait_for_a_long_leg(start: Start, place: Path) -> None:
    with start_stub(start, place) as agent, ThreadPoolExecutor() as threads:
        asked = threads.submit(ask, str(agent.socket), b"wait /for/ever", patience=1.0)
        wait_until(lambda: len(worked(agent)) == 1)

        assert agent.stop() == 0  # within Docker's ten seconds, or `stop` would not matter
        assert not agent.socket.exists()
        assert "Traceback" not in agent.log
        with pytest.raises(AgentUnreachable):
            asked.result(timeout=60)


@pytest.mark.timing
def test_a_courier_outlasts_a_restart_of_its_agent(start: Start, place: Path) -> None:
    request = f"wait {place / 'go'}".encode()
    with ThreadPoolExecutor() as threads:
        with start_stub(start, place) as agent:
            asked = threads.submit(ask, str(agent.socket), request, patience=300.0)
            wait_until(lambda: len(worked(agent)) == 1)
            agent.kill()
        (place / "go").touch()
        with start_stub(start, place):
            assert asked.result(timeout=300) == b"answer to " + request


@pytest.mark.timing
def test_a_courier_without_an_agent_gives_up_and_names_no_path(place: Path) -> None:
    clock = FakeClock()
    began = clock.now()
    with pytest.raises(AgentUnreachable) as error:
        ask(str(place / "agent.sock"), b"request", clock=clock)

    assert 30 <= clock.now() - began < 31
    assert str(error.value) == "the hospital's agent does not answer (FileNotFoundError)"


def _listens(socket: Path) -> bool:
    try:
        return bool(health(str(socket)))
    except AgentUnreachable:
        return False


# --- the real hospital behind it ------------------------------------------------------------------


ROUNDS = 6_000


def _experiment(hospital: Enrolled) -> Experiment:
    """Return an experiment of one leg that takes a while; the others are in this process."""
    identities = hospital.others | {"St Mary": hospital.folder.identity()}
    study = Study(hospital.coordinator, identities, hospital.roster())
    few = Examples(np.zeros((8, 3), np.float32), np.arange(8) % 2)
    for name in hospital.others:
        in_process(study, name, Partition(name, few, few))
    study.hospitals["St Mary"] = BehindSocket(hospital.folder)
    training = {"model": "mlp", "model-options": '{"hidden": [4]}', "batch-size": 4}
    descriptor = study.descriptor(
        rounds=ROUNDS, daisy_period=None, init="own", shape=(3,), training=training
    )
    return Experiment(study, descriptor)


def _signed_set_up(experiment: Experiment) -> bytes:
    return experiment.study.sign(experiment.set_up(), "St Mary")


def _signed_leg(experiment: Experiment) -> bytes:
    leg = TrainLeg(
        experiment=experiment.id,
        leg=1,
        first_round=0,
        local_rounds=ROUNDS,
        carries=Carries.NOTHING,
        recipient=None,
    )
    return experiment.study.sign(leg, "St Mary")


@pytest.mark.slow
@pytest.mark.timing
def test_a_killed_agent_comes_back_and_repeats_its_leg(
    enrolled: Enrolled, serve: Callable[[Enrolled], AbstractContextManager[Agent]]
) -> None:
    enrolled.set("plain-aggregation", "true")  # one hospital's model is compared below
    experiment = _experiment(enrolled)
    set_up, leg = _signed_set_up(experiment), _signed_leg(experiment)
    with ThreadPoolExecutor() as threads:
        with serve(enrolled) as agent:
            experiment.agree()
            experiment.make_keys()
            announced = ask(str(agent.socket), set_up)
            idle = _processor_ticks(agent)
            asked = threads.submit(ask, str(agent.socket), leg, patience=300.0)
            wait_until(lambda: _processor_ticks(agent) >= idle + 5)
            assert not asked.done()
            agent.kill()
        assert agent.socket.exists()  # it had no time to remove it
        with serve(enrolled) as agent:
            answer = asked.result(timeout=300)
            assert ask(str(agent.socket), leg) == answer
            assert ask(str(agent.socket), set_up) == announced
            assert _internet_sockets(agent.process.pid) == []
            second = _feddc("serve", enrolled)
            assert agent.stop() == 0
            assert "leg 1: rounds 1 to " in agent.log
            assert "sent for aggregation" in agent.log
            assert not agent.socket.exists()

    trained = decode_signed_reply(answer)
    assert isinstance(trained, Trained)
    assert trained.payload == _undisturbed(enrolled, leg).payload
    assert second.returncode == 2
    assert f"another agent (process {agent.process.pid})" in second.stderr
    audit = _feddc("audit", enrolled)
    assert audit.returncode == 0, audit.stderr
    # The set-up with its keys, the set-up again, the leg, its repetition, and one more set-up; the
    # killed attempt left no trace.
    assert "7 lines, complete and in order" in audit.stdout
    assert hashlib.sha256(leg).hexdigest() in _feddc("audit", enrolled, "--json").stdout


def _undisturbed(hospital: Enrolled, leg: bytes) -> Trained:
    """Return what a hospital with the same data and secret answers that was never killed."""
    stored = SqliteStore(hospital.folder.store_file)
    secret = stored.get(STREAM_SECRET)
    stored.close()
    assert secret is not None
    configuration = Configuration.read(hospital.folder.configuration)
    other = Hospital(
        "St Mary",
        load_partition(hospital.folder, configuration, codebook=None),
        MappingStore({STREAM_SECRET: secret}),
        identity=hospital.folder.identity(),
        roster=hospital.roster(),
        policy=configuration.policy,
    )
    experiment = _experiment(hospital)
    experiment.study.hospitals["St Mary"] = other
    experiment.agree()
    experiment.make_keys()
    trained = decode_signed_reply(other.answer(leg))
    assert isinstance(trained, Trained)
    return trained


def _processor_ticks(agent: Agent) -> int:
    """Return how long the process has computed so far, in hundredths of a second."""
    fields = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11])


def _feddc(command: str, hospital: Enrolled, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            *(sys.executable, "-m", "operation.cli", "hospital", command),
            *("--folder", str(hospital.folder.path), *more),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
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


def test_a_forged_request_is_refused_by_the_real_hospital(enrolled: Enrolled) -> None:
    configuration = Configuration.read(enrolled.folder.configuration)
    hospital = Hospital(
        "St Mary",
        load_partition(enrolled.folder, configuration, codebook=None),
        MappingStore({}),
        identity=enrolled.folder.identity(),
        roster=enrolled.roster(),
        policy=configuration.policy,
    )
    set_up = _signed_set_up(_experiment(enrolled))

    reply = decode_signed_reply(hospital.answer(set_up[:-1] + bytes([set_up[-1] ^ 1])))

    assert isinstance(reply, Refusal)
    assert reply.code is RefusalCode.BAD_SIGNATURE
