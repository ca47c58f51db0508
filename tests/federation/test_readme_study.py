"""The README's screens for hospital and coordinator make a study, as they stand."""

import csv
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer

from benchmarks.support.processes import free_port
from tests.federation.federation import FEDDC, environment, needs_nginx, wait_for
from tests.snippets import README, under

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]

HOSPITALS = ("St Mary", "Charite", "Mercy")
TASK = 'input-shape = "30"\nclasses = 2\nrounds = 6\naggregation-period = 3\n'


class Screens:
    """Runs the commands of both screens: each hospital and the coordinator in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port(3)  # the proxy's; then the SuperLink's and the long-poll server's
        screens = [under(README, f"For a {user}")[0] for user in ("hospital", "coordinator")]
        self.commands = {" ".join(w[1:3]): w[1:] for screen in screens for w in screen.commands}
        self.background: list[subprocess.Popen[bytes]] = []

    def place(self, who: str) -> Path:
        (self.folder / who).mkdir(exist_ok=True)
        return self.folder / who

    def words(self, command: str, hospital: str, experiment: str = "") -> list[str]:
        """Return a command of the page, with this hospital, this address and this experiment."""
        words = self.commands[command]
        if command == "coordinator init":
            internal = str(self.port + 1)
            words = [*words, "--listen", f"127.0.0.1:{self.port}", "--internal-port", internal]
        here = {
            "St Mary": hospital,
            "fl.example.org:8443": f"localhost:{self.port}",
            "20260101-115900-1a2b3c": experiment,
        }
        for shown, ours in here.items():
            words = [word.replace(shown, ours) for word in words]
        return [*FEDDC, *words]

    def run(self, command: str, who: str, *, hospital: str = "", experiment: str = "") -> str:
        """Run a command as the page shows it, and answer its question with yes."""
        done = subprocess.run(
            self.words(command, hospital or who, experiment),
            cwd=self.place(who),
            input="y\n",
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        assert done.returncode == 0, f"{command} at {who}: {done.stdout}{done.stderr}"
        return done.stdout

    def waiting(self, hospital: str) -> str | None:
        """Return the experiment that waits for the hospital's approval, if one does."""
        shown = self.run("hospital experiments", hospital)
        found = re.match(r"(\S+): waits for your approval", shown)
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


@pytest.fixture
def screens() -> Iterator[Screens]:
    # Not pytest's folder: a socket's path may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="fdc-"))
    made = Screens(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_two_screens_make_a_study_with_a_model_and_an_audit_log(screens: Screens) -> None:
    coordinator = screens.place("coordinator")
    screens.run("coordinator init", "coordinator")
    (coordinator / "study" / "settings.toml").write_text(TASK, encoding="utf-8")
    for number, name in enumerate(HOSPITALS):
        screens.run("hospital init", name)
        put_data(screens.place(name) / "hospital" / "data", number)
        shutil.copy(screens.place(name) / "hospital" / f"{name}.hospital.json", coordinator)
        screens.run("coordinator enrol", "coordinator", hospital=name)
    screens.run("coordinator roster", "coordinator")

    for name in HOSPITALS:
        sent = coordinator / "study" / "for-hospitals"
        shutil.copytree(sent, screens.place(name) / "for-hospitals")
        screens.run("hospital join", name)
        assert "examples to train on" in screens.run("hospital check", name)
        screens.start("hospital serve", name)
    screens.run("coordinator up", "coordinator")
    for name in HOSPITALS:
        screens.start("hospital connect", name)
    run = screens.start("coordinator run", "coordinator")
    for name in HOSPITALS:
        experiment = wait_for(lambda name=name: screens.waiting(name), f"a request to {name}")
        screens.run("hospital approve", name, experiment=experiment)
    assert run.wait(1000) == 0, (coordinator / "background.log").read_text()

    result = (coordinator / "background.log").read_text()
    assert "6 = 4 hand-overs + 2 aggregations" in result
    assert list(coordinator.glob("study/experiments/*/model.safetensors"))
    for name in HOSPITALS:
        audit = screens.run("hospital audit", name)
        assert "models sent to coordinator, as part of a sum of 3: 2" in audit
        assert "complete and in order" in audit


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
