"""A study on this machine with the product's own commands: coordinator, agents and SuperNodes."""

import csv
import random
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

from operation.runs.event_file import FILE_NAME, EventFile
from server_app.study.registration import control
from server_app.study.study_folder import Study

from .processes import FEDDC, Processes, base_environment, wait_for
from .study_setup import StudySetup

FEATURES, EXAMPLES = 10, 20
_START_SECONDS, _LEG_SECONDS = 180.0, 60.0
_SETTINGS: dict[str, Any] = {
    "input-shape": str(FEATURES),
    "classes": 2,
    "model": "mlp",
    "model-options": '{"hidden": [4]}',
    "daisy-period": 1,
    "batch-size": 5,
    "start-timeout": 300.0,
}


class SmallStudy:
    """A study of hospitals with a few generated patients each, with sealed hand-overs."""

    def __init__(self, folder: Path, processes: Processes, *, hospitals: int) -> None:
        self._names = [f"hospital-{number}" for number in range(hospitals)]
        self._setup = StudySetup(folder, feddc)
        self._setup.create("benchmark", _SETTINGS)
        for number, name in enumerate(self._names):
            self._setup.enrol(name, lambda place, seed=number: write_patients(place, seed=seed))  # type: ignore[misc]
        self._setup.sign_roster()
        for name in self._names:
            self._setup.join(name)
        for name in self._names:
            place = ["--folder", folder / name]
            processes.start(f"{name}.agent", [*FEDDC, "hospital", "serve", *place])
        # The services run in the background; `close` ends them.
        self._setup.coordinator("up")
        for name in self._names:
            place = ["--folder", folder / name]
            processes.start(f"{name}.connect", [*FEDDC, "hospital", "connect", *place])
        api = control(Study.open(self._setup.study))
        wait_for(
            lambda: sum(node.is_online for node in api.nodes()) == hospitals,
            "SuperNodes of the hospitals",
            _START_SECONDS,
        )

    def legs(self, count: int, **changes: object) -> list[float]:
        """Run FedDC; return the seconds of each leg except the first, which fetches the app."""
        changed = {key.replace("_", "-"): value for key, value in changes.items()}
        settings = [
            f"--set={key}={value}" for key, value in (changed | {"rounds": count + 1}).items()
        ]
        self._setup.coordinator(
            "run", "--json", *settings, seconds=_START_SECONDS + count * _LEG_SECONDS
        )
        newest = max((self._setup.study / "experiments").iterdir(), key=lambda folder: folder.name)
        events = EventFile(newest / FILE_NAME).new_events()
        legs = [event for event in events if event["event"] == "leg"]
        if len(legs) != count + 1 or any(leg["answered"] != len(self._names) for leg in legs):
            raise RuntimeError(f"a hospital did not answer in every leg: {newest}")
        ends = [float(leg["time"]) for leg in legs]
        return [end - start for start, end in pairwise(ends)]

    def close(self) -> None:
        self._setup.coordinator("down")


def feddc(*arguments: object, seconds: float = _START_SECONDS) -> None:
    command = [*FEDDC, *(str(argument) for argument in arguments)]
    done = subprocess.run(  # noqa: S603 (our own command)
        command,
        capture_output=True,
        text=True,
        timeout=seconds,
        env=base_environment(),
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[3:])}: {done.stdout}{done.stderr}")


def write_patients(place: Path, *, seed: int) -> None:
    rows = random.Random(seed)  # noqa: S311 (made-up patients)
    (place / "data").mkdir()
    with (place / "data" / "patients.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{column}" for column in range(FEATURES)), "label"])
        for number in range(EXAMPLES):
            values = [f"{rows.gauss(0, 1):.3f}" for _ in range(FEATURES)]
            writer.writerow([*values, ("ill", "well")[number % 2]])
    configuration = place / "hospital.toml"
    text = configuration.read_text(encoding="utf-8")
    configuration.write_text(text.replace("classes = []", 'classes = ["ill", "well"]'))
