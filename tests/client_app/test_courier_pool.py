"""The courier pool with a real SuperNode: notices when Flower has changed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from operation.flower.control_api import ControlApi, is_up, pack
from tests.processes import children, free_port, is_alive, wait_until

ROOT = Path(__file__).resolve().parents[2]
APPS = Path(__file__).parent / "courier_apps"
RAISED, CRASHED = 2, 8  # Flower's error codes


class Node:
    """A SuperLink and one SuperNode with its couriers, without TLS."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers = folder / "answers.json"
        self._processes: list[subprocess.Popen[bytes]] = []
        address, port = f"127.0.0.1:{free_port()}", free_port()
        programs = Path(sys.executable).parent
        self._start(
            *(programs / "flower-superlink", "--insecure", "--port", address.split(":")[1]),
            "--disable-runtime-dependency-installation",
        )
        self.api = ControlApi(address)
        wait_until(lambda: is_up(address), 90)
        self.runner = self._start(
            *(sys.executable, "-P", "-m", "client_app.connect.supernode_runner", port),
            *(programs / "flower-supernode", "--insecure", "--superlink", address),
            *("--isolation=process", "--port", port),
        )
        wait_until(lambda: any(node.is_online for node in self.api.nodes()), 90)
        (self.supernode,) = children(self.runner.pid)

    def ask(self, *asks: str, seconds: float = 120) -> list[Any]:
        """Run an app that asks the courier for these things, and return what it answered."""
        app = {name: f"telling_courier:{name}" for name in ("server", "client")}
        bundle = pack(
            server_app=app["server"], client_app=app["client"], config={"asks": " ".join(asks)}
        )
        run = self.api.start_run(bundle)
        wait_until(lambda: self.api.is_over(run), seconds)
        assert self.api.status(run).status == "finished:completed", self.log()
        answers: list[Any] = json.loads(self._answers.read_text())
        return answers

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, *command: object) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(os.environ)
                | {
                    "PYTHONPATH": f"{ROOT}{os.pathsep}{APPS}",
                    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                    "FLWR_HOME": str(self._folder / "home"),
                    "FLWR_TELEMETRY_ENABLED": "0",
                    "FLWR_DISABLE_UPDATE_CHECK": "1",
                    "NO_PROXY": "127.0.0.1",
                    "FEDDC_TEST_ANSWERS": str(self._answers),
                },
            )
        self._processes.append(process)
        return process


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def test_every_message_gets_a_process_of_its_own_forked_from_the_runner(node: Node) -> None:
    first, second, failed, last = node.ask("tell", "tell", "raise", "tell")

    assert {told["parent"] for told in (first, second, last)} == {node.runner.pid}
    assert len({told["pid"] for told in (first, second, last)}) == 3
    assert not any(told["torch"] for told in (first, second, last))
    assert failed == RAISED
    wait_until(lambda: children(node.runner.pid) == [node.supernode], 20)  # none is left


@pytest.mark.slow
def test_a_killed_courier_is_an_error_and_the_next_message_is_answered(node: Node) -> None:
    crashed, told = node.ask("die", "tell", seconds=240)

    assert crashed == CRASHED
    assert told["parent"] == node.runner.pid
    assert "a courier was killed (SIGKILL)" in node.log()


def test_the_runner_ends_with_its_supernode(node: Node) -> None:
    os.kill(node.supernode, signal.SIGKILL)

    assert node.runner.wait(20) == 128 + signal.SIGKILL


def test_the_supernode_ends_with_its_runner(node: Node) -> None:
    node.runner.kill()

    wait_until(lambda: not is_alive(node.supernode), 20)


def test_a_signal_lets_the_supernode_deactivate_its_node(node: Node) -> None:
    node.runner.terminate()

    node.runner.wait(20)
    assert "SuperNode terminated gracefully" in node.log()
    assert not any(found.is_online for found in node.api.nodes())
