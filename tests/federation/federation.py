"""A coordinator and hospitals as real processes on this machine, for tests that break them.

SuperLink, proxy, agents and SuperNodes are the product's own, with TLS and authentication. Each
hospital has exactly the examples that `feddc simulate` would give it, so that results can be
compared to the last bit.
"""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.support.study_setup import StudySetup
from client_app.cli import app as hospital_commands
from client_app.hospital_folder import HospitalFolder
from client_app.state.held_out_file import HeldOutFile
from learning.data import Partition
from learning.local_data import load_dataset, load_partitions
from server_app.cli import app as coordinator_commands
from server_app.config.run_config import Settings
from tests.janitor import janitor
from tests.processes import children
from tests.small_disk import small_disk

GROUPS = {"hospital": hospital_commands, "coordinator": coordinator_commands}
ROOT = Path(__file__).resolve().parents[2]
FEDDC = [sys.executable, "-c", "from operation.cli import main; main()"]
SEED = 7

needs_nginx = pytest.mark.skipif(
    shutil.which("nginx") is None and not Path("/usr/sbin/nginx").exists(),
    reason="nginx, the coordinator's proxy, is not installed",
)

# The task of all these tests; the settings of a simulation of the same study.
SIMULATED: dict[str, Any] = {
    "dataset": "breast-cancer",
    "hospitals": 4,
    "examples": 15,
    "held-out": 5,
    "seed": SEED,
}
STUDY: dict[str, Any] = {
    "input-shape": "30",
    "classes": 2,
    "rounds": 9,
    "daisy-period": 1,
    "aggregation-period": 3,
    "model-options": '{"hidden": [6]}',
    "batch-size": 5,
    "precision": "float64",
    "start-timeout": 120.0,
    "leg-timeout": 120.0,
}


def simulation(**changes: Any) -> Settings:
    """Return the settings of `feddc simulate` for the same experiment."""
    study = {key: value for key, value in STUDY.items() if key not in ("input-shape", "classes")}
    changed = {key.replace("_", "-"): value for key, value in changes.items()}
    # Real hospitals average securely unless told otherwise, simulated ones if asked to.
    defaults = SIMULATED | {"averaging": "secure"}
    return Settings.from_run_config(defaults | study | changed, source="test")


class Federation:
    """A study in a folder of its own. Processes are known by name: `agent`, `supernode`."""

    def __init__(self, folder: Path, hospitals: int = 4, **changes: Any) -> None:
        self.folder = folder
        self._setup = StudySetup(folder, feddc)
        self.study = self._setup.study
        settings = simulation(hospitals=hospitals)
        self.classes = load_dataset(settings.local, SEED).classes
        partitions = load_partitions(settings.local, hospitals, SEED)
        self.partitions = {partition.name: partition for partition in partitions}
        self.names = tuple(self.partitions)
        self.processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._before: set[Path] = set()
        self.settings = STUDY | {key.replace("_", "-"): value for key, value in changes.items()}
        self._create()

    def hospital(self, name: str) -> Path:
        return self._setup.hospital(name)

    # --- setting up -------------------------------------------------------------------------------

    def _create(self) -> None:
        self._setup.create("tests", self.settings)
        for name in self.names:
            self.enrol(name, self.partitions[name])
        self.sign_roster()
        for name in self.names:
            self.join(name)

    def enrol(self, name: str, partition: Partition) -> None:
        """Create a hospital's folder with its data, and enrol the hospital in the study."""
        self._setup.enrol(name, lambda place: write_data(place, partition, self.classes))

    def sign_roster(self) -> None:
        self._setup.sign_roster()

    def join(self, name: str) -> None:
        self._setup.join(name)

    def coordinator(self, *arguments: str) -> str:
        return str(self._setup.coordinator(*arguments))

    # --- processes --------------------------------------------------------------------------------

    def up(self) -> None:
        """Start everything and wait until the coordinator answers."""
        for name in self.names:
            self.start("agent", name)
        self.coordinator("up")
        for name in self.names:
            self.start("supernode", name)

    def start(self, kind: str, name: str) -> None:
        command = {"agent": "serve", "supernode": "connect"}[kind]
        log = (self.folder / f"{name}.{kind}.log").open("ab")
        self.processes[kind, name] = subprocess.Popen(
            [*FEDDC, "hospital", command, "--folder", str(self.hospital(name))],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(),
        )
        log.close()

    def kill(self, kind: str, name: str) -> None:
        """Kill −9 a process with all it has started."""
        process = self.processes.pop((kind, name))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def restart(self, kind: str, name: str) -> None:
        """End a process as its operator would, and start it again."""
        process = self.processes[kind, name]
        process.terminate()
        process.wait(180)
        self.start(kind, name)

    def wait_until_connected(self, name: str) -> None:
        def look() -> bool | None:
            hospitals = json.loads(self.coordinator("status", "--json"))["hospitals"]
            return any(h["name"] == name and h["connected"] for h in hospitals) or None

        wait_for(look, f"connection of {name}")

    def signal(self, kind: str, name: str, number: signal.Signals) -> None:
        os.killpg(self.processes[kind, name].pid, number)

    def courier_is_at_work(self, name: str) -> bool:
        """Whether a courier has been forked for a message to the hospital."""
        mine = self.processes["supernode", name].pid
        runners = [pid for pid in children(mine) if _runs(pid, "supernode_runner")]
        couriers = (pid for runner in runners for pid in children(runner))
        return any(_runs(pid, "supernode_runner") for pid in couriers)

    def revive(self) -> None:
        """Let everything run that should."""
        for name in self.names:
            for kind in ("agent", "supernode"):
                process = self.processes.get((kind, name))
                if process is None or process.poll() is not None:
                    self.start(kind, name)
                else:
                    self.signal(kind, name, signal.SIGCONT)

    def close(self) -> None:
        for kind, name in list(self.processes):
            with suppress(ProcessLookupError):
                self.signal(kind, name, signal.SIGCONT)
            self.kill(kind, name)
        CliRunner().invoke(coordinator_commands, ["down", "--study", str(self.study)])

    # --- experiments ------------------------------------------------------------------------------

    def begin(self, *arguments: str, command: str = "run") -> subprocess.Popen[str]:
        """Start `feddc coordinator run` (or resume) in the background."""
        seed: list[str] = []
        if command == "run":
            seed = ["--seed", str(SEED)]
            self._before = set((self.study / "experiments").glob("*"))
        return subprocess.Popen(
            [
                *FEDDC,
                "coordinator",
                command,
                "--json",
                "--study",
                str(self.study),
                *seed,
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def run(self, *arguments: str, command: str = "run", timeout: float = 1000) -> "Outcome":
        return self.ended(self.begin(*arguments, command=command), timeout)

    def ended(self, process: subprocess.Popen[str], timeout: float = 1000) -> "Outcome":
        out, err = process.communicate(timeout=timeout)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        return Outcome(process.returncode, json.loads(lines[-1]) if lines else {}, err)

    def experiment(self) -> Path:
        """Return the folder of the experiment last begun, as soon as it is there."""
        folders = self.study / "experiments"
        return wait_for(
            lambda: next((f for f in folders.glob("*") if f not in self._before), None),
            "an experiment",
        )

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        path = self.experiment() / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if kind is None or line["event"] == kind]

    def wait_for_leg(self, leg: int, timeout: float = 600) -> None:
        """Wait until a leg has ended."""

        def look() -> bool | None:
            if end := self.events("end"):
                raise AssertionError(f"ended before leg {leg}: {end[-1]}")
            return any(event["leg"] >= leg for event in self.events("leg")) or None

        wait_for(look, f"the end of leg {leg}", timeout)

    def model(self) -> dict[str, Any]:
        from safetensors.numpy import load_file

        return load_file(self.experiment() / "model.safetensors")

    def server_apps(self) -> list[int]:
        """Return the processes of the running experiment's ServerApp, as soon as there is one."""
        return wait_for(lambda: self.coordinator_processes("flwr-serverapp") or None, "a ServerApp")

    def coordinator_processes(self, *words: str) -> list[int]:
        """Return the coordinator's processes whose command line has one of the words."""
        mark = f"FLWR_HOME={self.study / 'superlink' / 'home'}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                    line = (entry / "cmdline").read_bytes().decode(errors="replace")
                    if any(word in line for word in words):
                        found.append(int(entry.name))
        return found

    def logs(self) -> str:
        """Return the end of every log, for when a test fails."""
        files = [*self.folder.glob("*.log"), *(self.study / "logs").glob("*")]
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def assert_same_model(study: Federation, folder: Path, **changes: Any) -> None:
    """Compare the experiment's model with that of its simulation, to the last bit."""
    from safetensors.numpy import load_file

    from lab.flower.in_process import simulate_in_process

    simulate_in_process(simulation(**changes), folder)
    expected = load_file(folder / "model.safetensors")
    found = study.model()
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def assert_chains_accounted_for(study: Federation) -> None:
    """Every model that went out was aggregated, or is said to be lost."""
    lost = 0
    lines = {(e["leg"], e["hospital"]): e for e in study.events("hospital")}
    for leg in {e["leg"]: e for e in study.events("leg")}.values():
        if leg["ending"] == "aggregation":
            weights = [
                line["weight"] for (number, _), line in lines.items() if number == leg["leg"]
            ]
            aggregated = sum(weight is not None for weight in weights)
            assert aggregated + leg["lost_chains"] - lost == len(study.names), leg
            lost = leg["lost_chains"]


class Outcome:
    """How a command ended."""

    def __init__(self, code: int, result: dict[str, Any], errors: str) -> None:
        self.code, self.result, self.errors = code, result, errors


@contextmanager
def federation(
    make: Callable[..., Federation] = Federation,
    *,
    disks: Mapping[str, int] | None = None,
    **changes: Any,
) -> Iterator[Federation]:
    """Run a federation; everything is stopped and removed at the end.

    `disks` gives folders (a hospital's name, `study`) a file system of so many megabytes.
    """
    # Not pytest's folder: a socket's path may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="fdc-"))
    with ExitStack() as stack:
        stack.enter_context(janitor(folder))
        for name, megabytes in (disks or {}).items():
            stack.enter_context(small_disk(folder / name, megabytes))
        made = make(folder, **changes)
        stack.callback(made.close)
        try:
            made.up()
            yield made
        except BaseException:
            sys.stderr.write(made.logs())
            raise


def feddc(group: str, *arguments: str) -> str:
    """Run a command in this process and return its output."""
    result = CliRunner().invoke(GROUPS[group], list(arguments))
    if result.exit_code:
        raise AssertionError(f"{group} {arguments}: {result.output} {result.exception!r}")
    return result.output


def write_data(place: Path, partition: Partition, classes: tuple[str, ...]) -> None:
    """Write a hospital's examples so that it holds out those that the simulation would."""
    file = HeldOutFile(HospitalFolder(place).held_out_file)
    decided = file.read()
    rows: list[list[str]] = []
    for examples in (partition.train, partition.held_out):
        for features, label in zip(examples.features, examples.labels, strict=True):
            number = str(len(rows))
            decided.recorded[decided.tag(f"patient {number}")] = examples is partition.held_out
            # Every float32 is exactly a decimal of a float64.
            values = [repr(float(x)) for x in np.ravel(features)]
            rows.append([*values, classes[int(label)], number])
    file.save(decided)
    header = [*(f"f{column:03}" for column in range(len(rows[0]) - 2)), "label", "patient"]
    data = place / "data"
    data.mkdir()
    with (data / "patients.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    config = (place / "hospital.toml").read_text()
    changes = {
        "classes = []": f"classes = {json.dumps(list(classes))}",
        "standardise = true": "standardise = false",
        # So that batches are the simulation's, and figures can be compared.
        "private-streams = true": "private-streams = false",
        "maximum-experiments = 10": "maximum-experiments = 100",
        "metrics = []": 'metrics = ["examples", "loss", "accuracy", "held-out"]',
    }
    for old, new in changes.items():
        assert old in config
        config = config.replace(old, new)
    (place / "hospital.toml").write_text(config)


def wait_for(look: Callable[[], Any], what: str, timeout: float = 300) -> Any:
    deadline = time.monotonic() + timeout
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} after {timeout:g} s")
        time.sleep(0.05)
    return found


def _runs(pid: int, module: str) -> bool:
    with suppress(OSError):
        return module in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def environment() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
