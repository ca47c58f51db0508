"""A coordinator and three hospitals on one machine, in the containers that real ones run.

`make federation` builds the images, brings everything up with new keys, runs FedDC and prints what
came out. KEEP=1 leaves it running; `python3 docker/local/federation.py down` then takes it away.
Needs Docker with compose, and nothing of Python but itself.
"""

# ruff: noqa: S603, S607, T201 (a script for people, which calls docker)

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCKER = HERE.parent
ADDRESS = "coordinator.test:8443"
HOSPITALS = ("Anna", "Barts", "Charite")
EXAMPLES = 120
# Twelve legs: a leg costs about the same however many rounds it has, with data this small.
SETTINGS: dict[str, object] = {
    "input-shape": "64",
    "classes": 10,
    "rounds": 120,
    "daisy-period": 10,
    "aggregation-period": 30,
    "model": "mlp",
    "learning-rate": 0.5,
    "batch-size": 32,
}


class Failed(Exception):
    """A command ended with an error; the message is its own."""


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

    def run(self, service: str, *arguments: str, entrypoint: str = "", data: bytes = b"") -> bytes:
        """Run a command in a new container of a service, and remove it."""
        entry = ["--entrypoint", entrypoint] if entrypoint else []
        return self.compose("run", "--rm", "-T", *entry, service, *arguments, data=data)


class Federation:
    """All of it, under names that begin with `name`."""

    def __init__(self, name: str = "feddc-local") -> None:
        self.network = name
        common = {"FEDDC_NETWORK": name, "TORCH": torch_build()}
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
        """Bring up coordinator and hospitals, as their people would, but without telephones."""
        docker("network", "create", self.network)
        say("the coordinator makes the study")
        self.coordinator.run("superlink", "init", "--name", "digits", "--address", ADDRESS)
        self.coordinator.compose("up", "--detach", "--wait", "--no-build")
        for name, project in self.hospitals.items():
            say(f"{name} makes its keys, and the coordinator enrols it")
            self._enrol(name, project)
        invitation = self._roster()
        for name, project in self.hospitals.items():
            say(f"{name} joins and connects")
            project.run("agent", "-xC", "/hospital", entrypoint="tar", data=invitation.files)
            project.run("agent", "join", "hospital/roster", "--fingerprint", invitation.fingerprint)
            project.compose("up", "--detach", "--no-build")
        say("waiting until all are connected")
        for project in self.hospitals.values():
            project.compose("up", "--detach", "--wait", "--no-build")

    def run(self, settings: dict[str, object]) -> dict[str, Any]:
        """Run an experiment to its end and return what the coordinator says about it."""
        changes = [f"--set={key}={json.dumps(value)}" for key, value in settings.items()]
        outcome: dict[str, Any] = json.loads(self.command("run", "--json", *changes, show=True))
        return outcome

    def command(self, *arguments: str, show: bool = False) -> bytes:
        """Run a `feddc coordinator` command, as the coordinator would."""
        exec_ = ["exec", "-T", "superlink", "feddc", "coordinator"]
        return self.coordinator.compose(*exec_, *arguments, show=show)

    def down(self) -> None:
        """Remove containers, volumes and networks; keys and data of the federation go with them."""
        for project in (*self.hospitals.values(), self.coordinator):
            project.compose("down", "--volumes", "--timeout", "5")
        docker("network", "rm", "--force", self.network)

    def _enrol(self, name: str, project: Project) -> None:
        number = str(HOSPITALS.index(name) + 1)
        data = f"{project.name}_data:/data"
        place = ["run", "--rm", "-i", "--user=0", "--network=none", "--volume", data]
        image = ["--entrypoint=python", f"feddc/agent:{version()}", "-"]
        shares = (HERE / "share_data.py").read_bytes()
        project.compose("create", "--no-build", "agent")  # makes the volumes
        docker(*place, *image, number, str(len(HOSPITALS)), str(EXAMPLES), data=shares)
        told = project.run("agent", "init", "--name", name, "--study", "digits").decode()
        fingerprint = json.loads(told[: told.index("}") + 1])["fingerprint"]
        classes = json.dumps([str(digit) for digit in range(10)])
        lines = {"classes": classes, "standardise": "false"}
        changes = ";".join(f"s/^{key} = .*/{key} = {value}/" for key, value in lines.items())
        project.run("agent", "-i", changes, "/hospital/hospital.toml", entrypoint="sed")
        card = project.run("agent", f"/hospital/{name}.hospital.json", entrypoint="cat")
        place = f"/study/{name}.hospital.json"
        keep = ["exec", "-T", "superlink", "sh", "-c", f"cat > '{place}'"]
        self.coordinator.compose(*keep, data=card)
        self.command("enrol", place, "--fingerprint", fingerprint)

    def _roster(self) -> "Invitation":
        told = self.command("roster").decode()
        found = re.search(r"fingerprint of this roster:\s+([0-9A-Z ]+)", told)
        if found is None:
            raise Failed(f"no fingerprint in what the coordinator said: {told}")
        take = ["exec", "-T", "superlink", "tar", "-C", "/study/for-hospitals", "-c", "."]
        return Invitation(found[1].strip(), self.coordinator.compose(*take))


@dataclass(frozen=True)
class Invitation:
    """What the coordinator sends to the hospitals: a folder, as a tar file, and a fingerprint."""

    fingerprint: str
    files: bytes

    @property
    def names(self) -> list[str]:
        with tarfile.open(fileobj=io.BytesIO(self.files)) as archive:
            return archive.getnames()


def docker(
    *arguments: str,
    data: bytes = b"",
    environment: dict[str, str] | None = None,
    show: bool = False,
) -> bytes:
    """Run a docker command and return its output; Failed has what it said if it fails."""
    done = subprocess.run(
        ["docker", *arguments],
        input=data,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        env=os.environ | (environment or {}),
    )
    if done.returncode:
        said = (done.stderr or b"").decode(errors="replace").strip()
        raise Failed(f"docker {' '.join(arguments[:12])}: exit code {done.returncode}\n{said}")
    return done.stdout


def report(outcome: dict[str, Any]) -> None:
    """Print what came out."""
    models = len(HOSPITALS)
    print(
        f"accuracy of the aggregate at the hospitals  {outcome['mean_held_out_accuracy']}\n"
        f"legs                                        {outcome['legs']}: "
        f"{outcome['hand_overs']} hand-overs, {outcome['aggregations']} aggregations\n"
        f"chains                                      {models}, lost {outcome['lost_chains']}, "
        f"missed rounds {outcome['missed_rounds']}\n"
        f"hand-overs sealed                           {'yes' if outcome['sealed'] else 'NO'}\n"
        f"time of the experiment                      {outcome['seconds']:.0f} s"
    )


def torch_build() -> str:
    """Return which torch to build with: without CUDA, if it was said where that is."""
    return os.environ.get("TORCH") or ("cpu" if os.environ.get("TORCH_INDEX") else "cuda")


def version() -> str:
    return os.environ.get("FEDDC_VERSION", "0.1.0")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> None:
    """Build, bring up, run, print, take down."""
    federation = Federation()
    if sys.argv[1:] == ["down"]:
        federation.down()
        return
    start = time.monotonic()
    try:
        federation.build()
        built = time.monotonic()
        federation.up()
        up = time.monotonic()
        report(federation.run(SETTINGS))
        say(
            f"images {built - start:.0f} s, federation up {up - built:.0f} s, "
            f"experiment {time.monotonic() - up:.0f} s"
        )
    except Failed as error:
        sys.exit(str(error))
    finally:
        if not os.environ.get("KEEP"):
            say("taking it down; KEEP=1 keeps it")
            federation.down()


if __name__ == "__main__":
    main()
