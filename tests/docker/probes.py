"""Ways to look at a container: what the engine says, and what a script sees from inside."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.local.federation import Project, docker, version

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Victim:
    """Somebody who listens: at its own address, or at all addresses of the engine's machine."""

    name: str
    address: str
    port: int

    def datagrams(self) -> list[str]:
        said = docker("logs", self.name).decode().splitlines()
        return [line for line in said if line.startswith("datagram")]


def inspect(project: Project, service: str) -> Any:
    return json.loads(docker("inspect", project.container(service)))[0]


def is_healthy(project: Project, service: str) -> bool:
    return bool(inspect(project, service)["State"]["Health"]["Status"] == "healthy")


def execute(project: Project, service: str, *command: str) -> str:
    return project.execute(service, *command).decode()


def inside(project: Project, service: str, script: str, *arguments: str, skip: str = "") -> Any:
    """Run one of this folder's scripts in a running container; return what it printed."""
    code = (HERE / script).read_bytes()
    command = ["env", f"FEDDC_SKIP={skip}"] if skip else []
    return json.loads(project.execute(service, *command, "python", "-", *arguments, data=code))


def elsewhere(network: str, script: str, *arguments: str) -> Any:
    """Run a script in an ordinary container: what it can do there, the probe is able to show."""
    code = (HERE / script).read_bytes()
    image = ["--entrypoint=python", f"feddc/forwarder:{version()}", "-"]
    options = ["--rm", "-i", "--user=0", f"--network={network}"]
    return json.loads(docker("run", *options, *image, *arguments, data=code))
