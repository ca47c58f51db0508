"""Set up a study on this machine with the commands of coordinator and hospital."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from protocol.codebook import Codebook
from protocol.study.roster import Roster

from .processes import free_port

# Runs one `feddc` command; raises if it fails.
RunCommand = Callable[..., object]


class StudySetup:
    """A study's folder and its hospitals' folders next to each other.

    `feddc` runs a command, in a process of its own or in this one.
    """

    def __init__(self, folder: Path, feddc: RunCommand) -> None:
        self.folder = folder
        self.study = folder / "study"
        self._feddc = feddc

    def create(self, name: str, settings: Mapping[str, object]) -> None:
        """Create the coordinator's folder, with free ports, and write the settings."""
        # The first two are the SuperLink's and the long-poll server's, the third the proxy's.
        internal = free_port(3)
        self.coordinator(
            "init", "--name", name, "--address", f"localhost:{internal + 2}",
            "--listen", f"127.0.0.1:{internal + 2}", "--internal-port", str(internal),
        )  # fmt: skip
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
        (self.study / "settings.toml").write_text("".join(lines))

    def hospital(self, name: str) -> Path:
        return self.folder / name

    def enrol(self, name: str, write_data: Callable[[Path], None]) -> None:
        """Create a hospital's folder with its data, and enrol the hospital in the study."""
        place = self.hospital(name)
        self._feddc("hospital", "init", "--name", name, "--folder", str(place))
        configuration = place / "hospital.toml"
        text = configuration.read_text()
        # Nobody is there to approve experiments, and there may be many.
        text = text.replace('approval = "each"', 'approval = "automatic"')
        text = text.replace("maximum-experiments = 10\n", "maximum-experiments = 1000\n")
        # Strategies that step from the mean are run too, and plain averaging for comparison.
        text = text.replace('aggregate = "verified"', 'aggregate = "same"')
        text = text.replace("plain-aggregation = false", "plain-aggregation = true")
        configuration.write_text(text)
        write_data(place)
        card = place / f"{name}.hospital.json"
        fingerprint = json.loads(card.read_text())["fingerprint"]
        self.coordinator("enrol", str(card), "--fingerprint", fingerprint)

    def sign_roster(self) -> None:
        self.coordinator("roster")

    def join(self, name: str) -> None:
        """Pin the signed roster at a hospital, and the codebook if the study has one."""
        file, place = self.study / "for-hospitals" / "roster", str(self.hospital(name))
        roster = Roster.from_signed(file.read_bytes())
        compared = ["--fingerprint", roster.fingerprint]
        if (signed := file.with_name("codebook")).exists():
            codebook = Codebook.from_signed(signed.read_bytes(), roster.coordinator)
            compared += ["--codebook-fingerprint", codebook.fingerprint]
        self._feddc("hospital", "join", str(file), "--folder", place, *compared)

    def coordinator(self, command: str, *arguments: str, **options: float) -> object:
        """Run a coordinator's command on the study; `options` are passed to `feddc`."""
        return self._feddc(
            "coordinator", command, *arguments, "--study", str(self.study), **options
        )
