"""A coordinator that is up, with hospitals that can connect: real processes on free ports."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from client_app.enrol.enrolment import initialise
from client_app.hospital_folder import HospitalFolder
from server_app.services import background
from server_app.services.nginx import ProxyError, find_nginx
from server_app.study import study_members
from server_app.study.creation import create_study
from server_app.study.study_folder import Study
from tests.processes import free_port

ROOT = Path(__file__).parents[2]
STUB_APP = Path(__file__).parent / "stub_app"
HOST = "coordinator.test"  # known to nobody but the tests' CONNECT proxy


@dataclass
class Connected:
    """A `feddc hospital connect` that runs."""

    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, seconds: float = 300) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.text():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.1)


@dataclass
class Coordinator:
    """A study with its services, and the hospitals' folders."""

    study: Study
    hospitals: dict[str, HospitalFolder] = field(default_factory=dict)

    def feddc(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "operation.cli", "coordinator", *arguments]
        return subprocess.run(
            [*command, "--study", str(self.study.folder)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
            timeout=600,
        )

    def enrol(self, name: str) -> HospitalFolder:
        place = HospitalFolder(self.study.folder.parent / name)
        card, _ = initialise(place, name, "")
        written = place.configuration.read_text()
        approved = written.replace('approval = "each"', 'approval = "automatic"')
        place.configuration.write_text(approved)
        study_members.add(self.study, card)
        place.save_connection(self.study.connection())
        self.hospitals[name] = place
        return place

    @contextmanager
    def connected(self, place: HospitalFolder, **changes: str) -> Iterator[Connected]:
        log = place.path / f"connect-{time.monotonic_ns()}.log"
        command = ["-m", "operation.cli", "hospital", "connect", "--folder", str(place.path)]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdout=file,
                stderr=file,
                env=environment() | changes,
            )
        try:
            yield Connected(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def environment() -> dict[str, str]:
    python_path = os.pathsep.join((str(ROOT), str(STUB_APP)))
    return os.environ | {"PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def nginx() -> str:
    try:
        return find_nginx()
    except ProxyError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def new_coordinator() -> Iterator[Callable[[str], Coordinator]]:
    """Found a study in a folder of its own; whatever runs for it is stopped at the end."""
    made: list[Coordinator] = []
    folders: list[Path] = []

    def new(host: str = "localhost") -> Coordinator:
        folders.append(Path(tempfile.mkdtemp(prefix="s", dir="/tmp")))
        study = create_study(
            folders[-1] / "study",
            name="hearts",
            address=f"{host}:{free_port()}",
            listen="",
            internal_port=free_port(2),  # the next one is the long-poll server's
        )
        made.append(Coordinator(study))
        return made[-1]

    yield new
    for coordinator in made:
        background.stop(coordinator.study)
    for folder in folders:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def coordinator(nginx: str, new_coordinator: Callable[[str], Coordinator]) -> Iterator[Coordinator]:
    """A coordinator that is up, with two members."""
    made = new_coordinator(HOST)
    for name in ("Mercy", "Köln Süd"):
        made.enrol(name)
    study_members.write_roster(made.study)
    done = made.feddc("up")
    assert done.returncode == 0, done.stderr + _logs(made.study)
    yield made
    made.feddc("down")


def _logs(study: Study) -> str:
    lines = [line for path in study.logs.glob("*.jsonl") for line in path.open()]
    return "\n".join(json.loads(line)["text"] for line in lines)
