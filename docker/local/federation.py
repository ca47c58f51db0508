"""A coordinator and three hospitals on one machine, in the containers of a real study.

For `make federation` (run.py) and the tests. Needs Docker with compose; of Python, only the
standard library.
"""

# ruff: noqa: S603, S607, T201 (prints progress and calls docker)

import base64
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCKER = HERE.parent
ADDRESS = "coordinator.test:8443"
_MODEL = "model.safetensors"  # in an experiment's folder
HOSPITALS = ("Anna", "Barts", "Charite")
# Each hospital trains on 45 images and evaluates on 105: few enough that training alone falls
# behind, and enough for an accuracy that is exact to a few points.
EXAMPLES = 150
TEST_FRACTION = 0.7
# Twelve legs: with data this small the duration of a leg hardly depends on its rounds.
# One hidden layer: with the default of three, 120 rounds end between 11 and 99 %, by the seed.
SETTINGS: dict[str, object] = {
    "input-shape": "64",
    "classes": 10,
    "rounds": 120,
    "daisy-period": 10,
    "aggregation-period": 30,
    "model": "mlp",
    "model-options": '{"hidden": [64]}',
    "learning-rate": 0.5,
    "batch-size": 32,
}
# With NOISE=1: what anybody can learn about one image is bounded by ε = 8.
NOISE: dict[str, object] = {
    "privacy-unit": "patient",
    "nominal-patients": 45,
    "batch-size": 0,
    "rounds": 60,
    "daisy-period": 1,
    "aggregation-period": 3,
    "target-epsilon": 8.0,
    "average-noise-multiplier": 1.0,  # cancelled noise; computed from the target
}


class Failed(Exception):
    """A command failed; the message contains its errors."""


@dataclass(frozen=True)
class Project:
    """One compose project: the coordinator's, or a hospital's."""

    name: str
    files: tuple[Path, ...]
    environment: dict[str, str]

    def compose(self, *arguments: str, data: bytes = b"", show: bool = False) -> bytes:
        command = ["compose", "--project-name", self.name]
        for file in self.files:
            command += ["--file", str(file)]
        return docker(*command, *arguments, data=data, environment=self.environment, show=show)

    def container(self, service: str) -> str:
        """Return the id of a service's running container."""
        label = "label=com.docker.compose."
        facts = {"project": self.name, "service": service, "oneoff": "False"}
        filters = [f"--filter={label}{key}={value}" for key, value in facts.items()]
        found = docker("ps", "--quiet", "--no-trunc", *filters).decode().split()
        if len(found) != 1:
            raise Failed(f"{len(found)} containers of {self.name} run {service}, expected one")
        return found[0]

    def execute(self, service: str, *command: str, data: bytes = b"", show: bool = False) -> bytes:
        """Run a command in a service's running container.

        By the engine itself: compose would read all of the project again for every command.
        """
        return docker(
            "exec", "--interactive", self.container(service), *command, data=data, show=show
        )

    def run(self, service: str, *arguments: str, entrypoint: str = "", data: bytes = b"") -> bytes:
        """Run a command in a new container of a service, and remove it."""
        entry = ["--entrypoint", entrypoint] if entrypoint else []
        return self.compose("run", "--rm", "-T", *entry, service, *arguments, data=data)


class Federation:
    """The coordinator's and the hospitals' projects, with names that begin with `name`."""

    def __init__(self, name: str = "feddc-local") -> None:
        self.network = name
        # A trial on this machine: the base image may have no digest.
        common = {"FEDDC_NETWORK": name, "TORCH": torch_build(), "UNPINNED_BASE": "1"}
        self.coordinator = Project(
            f"{name}-coordinator",
            (DOCKER / "coordinator" / "compose.yaml", HERE / "coordinator.yaml"),
            common | {"FEDDC_FOLDER": "study"},
        )
        self.hospitals = {
            hospital: Project(
                f"{name}-{hospital.lower()}",
                (DOCKER / "hospital" / "compose.yaml", HERE / "hospital.yaml"),
                common
                | {"FEDDC_FOLDER": "folder", "FEDDC_DATA": "data", "FEDDC_COORDINATOR": ADDRESS},
            )
            for hospital in HOSPITALS
        }

    def build(self) -> None:
        for project in (self.coordinator, next(iter(self.hospitals.values()))):
            project.compose("build", show=True)

    def up(self) -> None:
        """Bring up coordinator and hospitals with the commands that their operators would use.

        Fingerprints are passed on instead of being read out over the telephone.
        """
        docker("network", "create", self.network)
        log("the coordinator creates the study")
        self.coordinator.run("superlink", "init", "--name", "digits", "--address", ADDRESS)
        self.coordinator.compose("up", "--detach", "--wait", "--no-build")
        for name, project in self.hospitals.items():
            log(f"{name} creates its keys, and the coordinator enrols it")
            self._enrol(name, project)
        invitation = self._roster()
        for name, project in self.hospitals.items():
            log(f"{name} joins and connects")
            project.run("agent", "-xC", "/hospital", entrypoint="tar", data=invitation.files)
            project.run("agent", "join", "hospital/roster", "--fingerprint", invitation.fingerprint)
            project.compose("up", "--detach", "--no-build")
        log("waiting until all are connected")
        for project in self.hospitals.values():
            project.compose("up", "--detach", "--wait", "--no-build")

    def run(self, settings: dict[str, object]) -> dict[str, Any]:
        """Run an experiment to its end and return its summary."""
        changes = [f"--set={key}={json.dumps(value)}" for key, value in settings.items()]
        outcome: dict[str, Any] = json.loads(self.command("run", "--json", *changes, show=True))
        return outcome

    def epsilons(self) -> dict[str, float]:
        """Return what each hospital's ledger says that a patient's privacy has cost."""
        ledgers = {
            name: json.loads(project.execute("agent", "feddc", "hospital", "ledger", "--json"))
            for name, project in self.hospitals.items()
        }
        return {name: float(ledger["epsilon"]) for name, ledger in ledgers.items()}

    def train_alone(self, settings: dict[str, object]) -> dict[str, float]:
        """Train a model at every hospital alone, in its agent's container; return accuracies."""
        return self._held_out_accuracies(json.dumps(settings))

    def aggregate_accuracies(
        self, settings: dict[str, object], outcome: dict[str, Any]
    ) -> dict[str, float]:
        """Evaluate an experiment's final model in every agent's container; return accuracies.

        The agents themselves send no figures.
        """
        model = self.coordinator.execute("superlink", "cat", f"{outcome['run_dir']}/{_MODEL}")
        return self._held_out_accuracies(json.dumps(settings), base64.b64encode(model).decode())

    def _held_out_accuracies(self, *arguments: str) -> dict[str, float]:
        code = (HERE / "held_out_accuracy.py").read_bytes()
        return {
            name: float(project.execute("agent", "python", "-", *arguments, data=code))
            for name, project in self.hospitals.items()
        }

    def command(self, *arguments: str, show: bool = False) -> bytes:
        """Run a `feddc coordinator` command in the coordinator's container."""
        command = ["superlink", "feddc", "coordinator", *arguments]
        return self.coordinator.execute(*command, show=show)

    def down(self) -> None:
        """Remove containers, networks and volumes, with the federation's keys and data."""
        for project in (*self.hospitals.values(), self.coordinator):
            project.compose("down", "--volumes", "--timeout", "5")
        docker("network", "rm", "--force", self.network)

    def _enrol(self, name: str, project: Project) -> None:
        number = str(HOSPITALS.index(name) + 1)
        data = f"{project.name}_data:/data"
        place = ["run", "--rm", "-i", "--user=0", "--network=none", "--volume", data]
        image = ["--entrypoint=python", f"feddc/agent:{version()}", "-"]
        code = (HERE / "write_partition.py").read_bytes()
        project.compose("create", "--no-build", "agent")  # creates the volumes
        docker(*place, *image, number, str(len(HOSPITALS)), str(EXAMPLES), data=code)
        project.run("agent", "init", "--name", name, "--study", "digits")
        classes = json.dumps([str(digit) for digit in range(10)])
        lines = {
            "approval": '"automatic"',  # nobody is there to approve
            "classes": classes,
            "standardise": "false",
            "test-fraction": str(TEST_FRACTION),
        }
        changes = ";".join(f"s/^{key} = .*/{key} = {value}/" for key, value in lines.items())
        project.run("agent", "-i", changes, "/hospital/hospital.toml", entrypoint="sed")
        card = project.run("agent", f"/hospital/{name}.hospital.json", entrypoint="cat")
        path = f"/study/{name}.hospital.json"
        self.coordinator.execute("superlink", "sh", "-c", f"cat > '{path}'", data=card)
        self.command("enrol", path, "--fingerprint", json.loads(card)["fingerprint"])

    def _roster(self) -> "Invitation":
        printed = self.command("roster").decode()
        take = ["superlink", "tar", "-C", "/study/for-hospitals", "-c", "."]
        return Invitation(read_out(printed), self.coordinator.execute(*take))


@dataclass(frozen=True)
class Invitation:
    """The coordinator's files for the hospitals as a tar file, and the roster's fingerprint."""

    fingerprint: str
    files: bytes


def docker(
    *arguments: str,
    data: bytes = b"",
    environment: dict[str, str] | None = None,
    show: bool = False,
) -> bytes:
    """Run a docker command and return its output; if it fails, raise Failed with its errors."""
    done = subprocess.run(
        ["docker", *arguments],
        input=data,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        env=os.environ | (environment or {}),
    )
    if done.returncode:
        errors = (done.stderr or b"").decode(errors="replace").strip()
        raise Failed(f"docker {' '.join(arguments[:12])}: exit code {done.returncode}\n{errors}")
    return done.stdout


def read_out(printed: str) -> str:
    """Return the fingerprint in a command's output: what people read out over the telephone."""
    found = re.search(r"fingerprint .*:\n +([0-9A-Z]{4}(?: [0-9A-Z]{4})+)\n", printed)
    if found is None:
        raise Failed(f"no fingerprint was printed: {printed}")
    return found[1]


def torch_build() -> str:
    """Return the build of torch: without CUDA if TORCH_INDEX gives its address."""
    return os.environ.get("TORCH") or ("cpu" if os.environ.get("TORCH_INDEX") else "cuda")


def version() -> str:
    return os.environ.get("FEDDC_VERSION", "0.1.0")


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
