"""A study made by commands as a page or a help text shows them, in processes of their own."""

import csv
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sklearn.datasets import load_breast_cancer

from benchmarks.support.processes import free_port
from operation.command_line.command import EXAMPLE_ID
from tests.federation.federation import FEDDC, environment
from tests.janitor import janitor

HOSPITALS = ("St Mary", "Charite", "Mercy")
TASK = 'input-shape = "30"\nclasses = 2\nrounds = 6\naggregation-period = 3\n'


class Screens:
    """Runs commands as a text shows them: each hospital and the coordinator in its own folder.

    `commands` are the words of each by its name, e.g. `hospital init`.
    """

    def __init__(self, folder: Path, commands: Mapping[str, list[str]]) -> None:
        self.folder = folder
        self.port = free_port(3)  # the proxy's; then the SuperLink's and the long-poll server's
        self.commands = commands
        self.background: list[subprocess.Popen[bytes]] = []

    def place(self, who: str) -> Path:
        (self.folder / who).mkdir(exist_ok=True)
        return self.folder / who

    def words(self, command: str, hospital: str, experiment: str = "") -> list[str]:
        """Return a command as shown, with this hospital, this address and this experiment."""
        words = self.commands[command]
        if command == "coordinator init":
            internal = str(self.port + 1)
            words = [*words, "--listen", f"127.0.0.1:{self.port}", "--internal-port", internal]
        here = {
            "St Mary": hospital,
            "fl.example.org:8443": f"localhost:{self.port}",
            EXAMPLE_ID: experiment,
        }
        for shown, ours in here.items():
            words = [word.replace(shown, ours) for word in words]
        return [*FEDDC, *words]

    def run(self, command: str, who: str, *, hospital: str = "", experiment: str = "") -> str:
        """Run a command as it is shown, and answer its questions with yes."""
        done = subprocess.run(
            self.words(command, hospital or who, experiment),
            cwd=self.place(who),
            input="y\ny\n",
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        assert done.returncode == 0, f"{command} at {who}: {done.stdout}{done.stderr}"
        return done.stdout

    def enrol_all(self, settings: str) -> None:
        """Create the study with these settings, and its hospitals with data."""
        coordinator = self.place("coordinator")
        self.run("coordinator init", "coordinator")
        (coordinator / "study" / "settings.toml").write_text(settings, encoding="utf-8")
        for number, name in enumerate(HOSPITALS):
            self.run("hospital init", name)
            put_data(self.place(name) / "hospital" / "data", number)
            shutil.copy(self.place(name) / "hospital" / f"{name}.hospital.json", coordinator)
            self.run("coordinator enrol", "coordinator", hospital=name)

    def waiting(self, hospital: str) -> str | None:
        """Return the experiment that waits for the hospital's approval, if one does."""
        shown = self.run("hospital experiments", hospital)
        found = re.search(r"^(\S+): waits for your approval", shown, re.MULTILINE)
        return found[1] if found else None

    def start(self, command: str, who: str) -> subprocess.Popen[bytes]:
        """Run a command in the background."""
        with (self.place(who) / "background.log").open("ab") as log:
            process = subprocess.Popen(
                self.words(command, who),
                cwd=self.place(who),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment(),
            )
        self.background.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self.background):
            process.terminate()
        for process in self.background:
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        down = [*FEDDC, "coordinator", "down"]
        subprocess.run(down, cwd=self.place("coordinator"), check=False, env=environment())


@contextmanager
def screens_of(commands: Mapping[str, list[str]]) -> Iterator[Screens]:
    """Make the folder of a study; stop everything and remove it at the end."""
    # Not pytest's folder: a socket's path may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="fdc-"))
    with janitor(folder):
        made = Screens(folder, commands)
        try:
            yield made
        finally:
            made.close()


def put_data(folder: Path, number: int) -> None:
    """Put a table with 30 patients where hospital.toml expects it."""
    source = load_breast_cancer()
    folder.mkdir()
    with (folder / "patients.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*(name.replace(" ", "-") for name in source.feature_names), "label"])
        for patient in range(number, 90, len(HOSPITALS)):
            table.writerow([*source.data[patient], source.target_names[source.target[patient]]])
    settings = folder.parent / "hospital.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("classes = []", 'classes = ["benign", "malignant"]'))
