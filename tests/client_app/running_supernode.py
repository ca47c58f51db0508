"""A SuperLink, and SuperNodes with their runners, as real processes without TLS."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from operation.flower.control_api import ControlApi, is_up, pack
from tests.processes import children, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
APPS = Path(__file__).parent / "courier_apps"
PROGRAMS = Path(sys.executable).parent


class Processes:
    """Processes with one log, all of which end with the block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{APPS}",
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "NO_PROXY": "127.0.0.1",
            "FEDDC_TEST_ANSWERS": str(self.folder / "answers.json"),
        }

    def start(self, *command: object) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(os.environ) | self.environment,
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

    def new_node(self, before: set[int]) -> int:
        """Wait for the one node that is online and was not before."""
        wait_until(lambda: bool(self.online() - before))
        (node_id,) = self.online() - before
        return node_id

    def ask(self, node_id: int, *asks: str) -> int:
        """Start an app that asks a node's courier for these things; return the run."""
        app = {name: f"process_report_app:{name}" for name in ("server", "client")}
        config = {"asks": " ".join(asks), "node": str(node_id)}
        return self.api.start_run(
            pack(server_app=app["server"], client_app=app["client"], config=config)
        )

    def answers(self, run: int) -> list[Any]:
        """Wait for the end of a run, and return what the node answered."""
        wait_until(lambda: self.api.is_over(run), 600)
        assert self.api.status(run).status == "finished:completed", self.processes.log()
        answers: list[Any] = json.loads((self.processes.folder / "answers.json").read_text())
        return answers


@contextmanager
def running_superlink(folder: Path) -> Iterator[SuperLink]:
    with Processes(folder) as processes:
        address = f"127.0.0.1:{free_port()}"
        processes.start(
            *(PROGRAMS / "flower-superlink", "--insecure", "--port", address.split(":")[1]),
            "--disable-runtime-dependency-installation",
        )
        wait_until(lambda: is_up(address))
        yield SuperLink(address, processes)


def supernode_command(superlink: str, port: int) -> list[str]:
    """Return the command of a SuperNode whose API for couriers has this port."""
    supernode = [str(PROGRAMS / "flower-supernode"), "--insecure", f"--superlink={superlink}"]
    return [*supernode, "--isolation=process", f"--port={port}"]


class Node:
    """One SuperNode with its runner."""

    def __init__(self, superlink: SuperLink, processes: Processes) -> None:
        self.superlink, self._processes = superlink, processes
        before, self.port = superlink.online(), free_port()
        self.record = processes.folder / "messages.json"
        runner = [sys.executable, "-P", "-m", "client_app.connect.supernode_runner"]
        command = supernode_command(superlink.address, self.port)
        # The shell stands for `feddc hospital connect`, and stays.
        self.parent = processes.start(
            *("sh", "-c", '"$@"; exit $?', "sh", *runner, self.port, self.record, *command)
        )
        self.node_id = superlink.new_node(before)
        (self.runner,) = children(self.parent.pid)
        (self.supernode,) = children(self.runner)

    @property
    def is_online(self) -> bool:
        return self.node_id in self.superlink.online()

    def ask(self, *asks: str) -> list[Any]:
        """Ask the courier for these things, and return what it answered."""
        return self.superlink.answers(self.start(*asks))

    def start(self, *asks: str) -> int:
        return self.superlink.ask(self.node_id, *asks)

    def hanging_courier(self) -> int:
        """Let a courier wait forever; return its process id."""
        self.start("hang")
        file = self._processes.folder / "hanging"
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
        return int(file.read_text())

    def log(self) -> str:
        return self._processes.log()
