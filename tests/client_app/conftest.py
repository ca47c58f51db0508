"""Hospitals with a folder, a study and data, and their agents as processes of their own."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from client_app.connect.agent_client import AgentUnreachable, health
from client_app.enrol.enrolment import initialise
from client_app.hospital_folder import HospitalFolder
from client_app.state.held_out_file import HeldOutFile
from learning.data.partition.held_out import HeldOut
from protocol.sealing.keys import Identity
from protocol.study.roster import Member, Roster

ROOT = Path(__file__).parents[2]
STUB = Path(__file__).with_name("stub_agent.py")
MAXIMUM = 100_000  # bytes, in a request to the stub
PATIENT = "PATIENT-4711"  # in every line of the data, to be looked for where it must not be


@dataclass(frozen=True)
class Enrolled:
    """A hospital that is ready: its folder, and the coordinator's identity to sign with."""

    folder: HospitalFolder
    coordinator: Identity
    others: dict[str, Identity]

    @property
    def socket(self) -> Path:
        return self.folder.path / "socket" / "agent.sock"

    def roster(self, generation: int = 1, study: str = "hearts") -> Roster:
        members = [Member(name, identity.public) for name, identity in self.others.items()]
        members.append(Member("St Mary", self.folder.identity().public))
        return Roster.make(study, generation, self.coordinator.public, members)

    def set(self, key: str, value: str) -> None:
        """Change a line of hospital.toml."""
        file = self.folder.configuration
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", file.read_text())
        assert count == 1
        file.write_text(text)


@dataclass(frozen=True)
class Agent:
    """A running agent."""

    process: subprocess.Popen[str]
    socket: Path
    _log: IO[str]

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


Start = Callable[..., AbstractContextManager[Agent]]


@pytest.fixture(scope="session")
def new_folder() -> Iterator[Callable[[], Path]]:
    """Folders with names short enough for sockets, which other users can pass through."""
    made: list[Path] = []

    def new() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="h", dir="/tmp")))
        made[-1].chmod(0o755)
        return made[-1]

    yield new
    for folder in made:
        shutil.rmtree(folder)


@pytest.fixture
def place(new_folder: Callable[[], Path]) -> Path:
    return new_folder()


@pytest.fixture(scope="session")
def enrol(new_folder: Callable[[], Path]) -> Callable[[], Enrolled]:
    """Make a hospital with 60 patients' records, on the pinned roster of a study of three."""

    def make() -> Enrolled:
        folder = HospitalFolder(new_folder() / "hospital")
        initialise(folder, "St Mary", "hearts")
        data = folder.path / "data"
        data.mkdir(mode=0o700)
        rows = [f"{PATIENT}-{n},{n % 7},{n % 5},{n % 3},{n % 2}" for n in range(60)]
        (data / "records.csv").write_text("\n".join(["patient_token,a,b,c,label", *rows]))
        # With this key 12 of the 60 are held out.
        HeldOutFile(folder.held_out_file).save(HeldOut(bytes([11]) * 32))
        others = {name: Identity.generate() for name in ("Charite", "Mercy")}
        made = Enrolled(folder, Identity.generate(), others)
        made.set("approval", '"automatic"')
        made.set("maximum-experiments", "1000")
        made.set("classes", '["0", "1"]')
        folder.pin(made.roster().signed(made.coordinator))
        return made

    return make


@pytest.fixture
def enrolled(enrol: Callable[[], Enrolled]) -> Enrolled:
    return enrol()


@pytest.fixture(scope="session")
def start() -> Start:
    """Start an agent as its own process and wait until it answers; it ends with the block."""

    @contextmanager
    def running(command: list[str], socket: Path) -> Iterator[Agent]:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=log, text=True, env=environment
            )
            try:
                _until_it_answers(process, socket, log)
                yield Agent(process, socket, log)
            finally:
                process.kill()
                process.wait()

    return running


@pytest.fixture(scope="session")
def serve(start: Start) -> Callable[[Enrolled], AbstractContextManager[Agent]]:
    """Start the real agent of a hospital."""

    def serving(hospital: Enrolled) -> AbstractContextManager[Agent]:
        command = [
            "-m",
            "operation.cli",
            "hospital",
            "serve",
            "--folder",
            str(hospital.folder.path),
        ]
        return start(command, hospital.socket)

    return serving


@pytest.fixture(scope="module")
def stub(start: Start, new_folder: Callable[[], Path]) -> Iterator[Agent]:
    """One agent for all tests of a file that leave it as it was; its answers are simple."""
    with start_stub(start, new_folder()) as agent:
        yield agent


def start_stub(start: Start, folder: Path) -> AbstractContextManager[Agent]:
    path = folder / "agent.sock"
    return start([str(STUB), str(path), str(MAXIMUM), str(folder / "log")], path)


def _until_it_answers(process: subprocess.Popen[str], socket: Path, log: IO[str]) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            health(str(socket))
            return
        except AgentUnreachable:
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                pytest.fail(f"the agent did not start: {log.read()}")
            time.sleep(0.05)
