"""A federation in containers; without a Docker engine its tests are skipped."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from docker.local.federation import Federation, Project, docker, version
from tests.docker.probes import HERE, Victim
from tests.processes import wait_until

ROOT = Path(__file__).parents[2]
LAB = ROOT.parent / "shared" / "tools" / "docker-lab"
NAME = "feddc-test"


@pytest.fixture(scope="session")
def engine() -> None:
    """Find an engine: the one that `docker` knows, or a private one beside the project."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    if not os.environ.get("DOCKER_HOST") and not _answers() and LAB.exists():
        printed = subprocess.run([LAB, "env"], capture_output=True, text=True, check=True).stdout
        settings = (part.split("=", 1) for part in shlex.split(printed) if "=" in part)
        os.environ.update(dict(settings))
    if not _answers():
        pytest.skip("no Docker engine answers: start one, or set DOCKER_HOST")


def _answers() -> bool:
    asked = subprocess.run(["docker", "version"], capture_output=True, timeout=60)
    return asked.returncode == 0


@pytest.fixture(scope="session")
def federation(engine: None) -> Iterator[Federation]:
    """A coordinator and three hospitals, up and connected."""
    made = Federation(NAME)
    made.build()
    made.down()  # left over if an earlier run was killed
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def hospital(federation: Federation) -> Project:
    return federation.hospitals["Anna"]


@pytest.fixture(scope="session")
def victim(federation: Federation) -> Iterator[Victim]:
    """A container in the network that the forwarders are in, which answers as DNS port, too."""
    yield from _listening("victim", 7777, f"--network={federation.network}", 53)


@pytest.fixture(scope="session")
def machine(federation: Federation) -> Iterator[Victim]:
    """The machine that the engine runs on, as far as the network is concerned."""
    yield from _listening("machine", 7778, "--network=host")


def _listening(name: str, port: int, network: str, *more: int) -> Iterator[Victim]:
    container = f"{NAME}-{name}"
    docker("rm", "--force", container)
    code = (HERE / "listener.py").read_text()
    options = ["--detach", "--user=0", network, f"--name={container}", f"--network-alias={name}"]
    if network.endswith("=host"):
        options.pop()
    ports = [str(number) for number in (port, *more)]
    image = ["--entrypoint=python", f"feddc/forwarder:{version()}", "-c", code]
    docker("run", *options, *image, *ports)
    try:
        wait_until(lambda: docker("logs", container).count(b"\n") > 0)
        yield Victim(container, docker("logs", container).decode().splitlines()[0], port)
    finally:
        docker("rm", "--force", container)
