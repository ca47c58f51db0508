"""The courier pool with a real SuperNode: notices when Flower has changed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from client_app.connect.courier_pool import CourierPool
from operation.flower.control_api import ControlApi, is_up, pack
from tests.fake_clock import FakeClock
from tests.processes import children, free_port, is_alive, wait_until

pytestmark = pytest.mark.timing

ROOT = Path(__file__).resolve().parents[2]
APPS = Path(__file__).parent / "courier_apps"
PROGRAMS = Path(sys.executable).parent
RAISED, CRASHED = 2, 8  # Flower's error codes


class Processes:
    """Processes with one log, all of which end with the block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self, *command: object) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(os.environ)
                | {
                    "PYTHONPATH": f"{ROOT}{os.pathsep}{APPS}",
                    "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
                    "FLWR_HOME": str(self.folder / "home"),
                    "FLWR_TELEMETRY_ENABLED": "0",
                    "FLWR_DISABLE_UPDATE_CHECK": "1",
                    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
                    "NO_PROXY": "127.0.0.1",
                    "FEDDC_TEST_ANSWERS": str(self.folder / "answers.json"),
                },
            )
        self._started.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@dataclass(frozen=True)
class SuperLink:
    """A SuperLink without TLS."""

    address: str
    processes: Processes

    @property
    def api(self) -> ControlApi:
        return ControlApi(self.address)

    def online(self) -> set[int]:
        return {node.node_id for node in self.api.nodes() if node.is_online}


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    with Processes(tmp_path_factory.mktemp("superlink")) as processes:
        address = f"127.0.0.1:{free_port()}"
        processes.start(
            *(PROGRAMS / "flower-superlink", "--insecure", "--port", address.split(":")[1]),
            "--disable-runtime-dependency-installation",
        )
        wait_until(lambda: is_up(address))
        yield SuperLink(address, processes)


class Node:
    """One SuperNode with its pool."""

    def __init__(self, superlink: SuperLink, processes: Processes) -> None:
        self.api, self._apps, self._processes = superlink.api, superlink.processes, processes
        before, port = superlink.online(), free_port()
        self.runner = processes.start(
            *(sys.executable, "-P", "-m", "client_app.connect.supernode_runner", port),
            *(PROGRAMS / "flower-supernode", "--insecure", "--superlink", superlink.address),
            *("--isolation=process", "--port", port),
        )
        wait_until(lambda: bool(superlink.online() - before))
        (self.node_id,) = superlink.online() - before
        (self.supernode,) = children(self.runner.pid)

    @property
    def is_online(self) -> bool:
        return any(node.is_online for node in self.api.nodes() if node.node_id == self.node_id)

    def ask(self, *asks: str) -> list[Any]:
        """Run an app that asks the courier for these things, and return what it answered."""
        run = self.start(*asks)
        wait_until(lambda: self.api.is_over(run), 600)
        assert self.api.status(run).status == "finished:completed", self.log()
        answers: list[Any] = json.loads((self._apps.folder / "answers.json").read_text())
        return answers

    def start(self, *asks: str) -> int:
        app = {name: f"process_report_app:{name}" for name in ("server", "client")}
        config = {"asks": " ".join(asks), "node": str(self.node_id)}
        return self.api.start_run(
            pack(server_app=app["server"], client_app=app["client"], config=config)
        )

    def hanging_courier(self) -> int:
        """Let a courier wait forever; return its process id."""
        self.start("hang")
        file = self._processes.folder / "hanging"
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
        return int(file.read_text())

    def log(self) -> str:
        return self._processes.log()


@pytest.fixture
def node(superlink: SuperLink, tmp_path: Path) -> Iterator[Node]:
    with Processes(tmp_path) as processes:
        yield Node(superlink, processes)


def test_every_message_gets_a_process_of_its_own_forked_from_the_runner(node: Node) -> None:
    first, second, failed, last = node.ask("tell", "tell", "raise", "tell")

    assert {report["parent"] for report in (first, second, last)} == {node.runner.pid}
    assert len({report["pid"] for report in (first, second, last)}) == 3
    assert not any(report["torch"] for report in (first, second, last))
    assert failed == RAISED
    wait_until(lambda: children(node.runner.pid) == [node.supernode])  # none is left


@pytest.mark.slow
def test_a_killed_courier_is_an_error_and_the_next_message_is_answered(node: Node) -> None:
    crashed, report = node.ask("die", "tell")

    assert crashed == CRASHED
    assert report["parent"] == node.runner.pid
    assert "a courier was killed (SIGKILL)" in node.log()


def test_the_runner_ends_with_its_supernode(node: Node) -> None:
    os.kill(node.supernode, signal.SIGKILL)

    assert node.runner.wait(120) == 128 + signal.SIGKILL


def test_supernode_and_couriers_end_with_their_runner(node: Node) -> None:
    courier = node.hanging_courier()

    node.runner.kill()

    wait_until(lambda: not is_alive(node.supernode))
    wait_until(lambda: not is_alive(courier))


def test_a_signal_lets_the_supernode_deactivate_its_node_and_leaves_no_courier(node: Node) -> None:
    courier = node.hanging_courier()

    node.runner.terminate()

    node.runner.wait(120)
    assert "SuperNode terminated gracefully" in node.log()
    assert not node.is_online
    wait_until(lambda: not is_alive(courier))


# --- without a SuperNode --------------------------------------------------------------------------


def test_a_killed_courier_after_which_no_task_comes_means_that_the_supernode_is_stuck() -> None:
    clock = FakeClock()
    pool = CourierPool(free_port(), clock)
    killed = subprocess.Popen(["sleep", "600"])
    pool._couriers.add(killed.pid)
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)

    pool.poll()

    assert not pool.is_stuck
    clock.sleep(60)  # Flower may notice by itself
    assert not pool.is_stuck
    clock.sleep(31)
    assert pool.is_stuck


def test_the_pause_between_polls_follows_the_length_of_a_leg() -> None:
    clock = FakeClock()
    pool = CourierPool(free_port(), clock)

    pauses = []
    for seconds in (0, 2, 2, 100):
        clock.sleep(seconds)
        pauses.append(pool.pause)

    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.5])
