"""A study with a codebook whose hospitals bring files of their own, with real processes."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_app.final_models.model_folder import ModelFolder
from client_app.hospital_folder import HospitalFolder
from client_app.state.held_out_file import HeldOutFile
from tests.federation.federation import Federation, feddc, wait_for

WriteFiles = Callable[[Path], None]


class FilesStudy(Federation):
    """Every hospital has what its function writes into its folder."""

    def __init__(
        self,
        folder: Path,
        *,
        codebook: str,
        settings: Mapping[str, Any],
        hospitals: Mapping[str, WriteFiles],
    ) -> None:
        self._codebook, self._hospitals = codebook, hospitals
        self._given = {**settings, "start-timeout": 120.0}
        super().__init__(folder)

    def _create(self) -> None:
        self.names = tuple(sorted(self._hospitals))
        self._setup.create("files", self._given)
        (self.study / "codebook.toml").write_text(self._codebook, encoding="utf-8")
        for name in self.names:
            self._setup.enrol(name, self._hospitals[name])
        self.sign_roster()
        for name in self.names:
            self.join(name)

    def evaluation(self, name: str) -> NDArray[np.int64]:
        """Return the confusion matrix that a hospital's agent has computed of the last model."""
        kept = ModelFolder(self.hospital(name) / "models" / self.experiment().name)
        wait_for(lambda: kept.is_evaluated or None, f"evaluation at {name}", 600)
        assert kept.evaluation is not None
        return np.array(kept.evaluation["study"]["confusion"])

    def predictions(self, name: str, *inputs: Path) -> list[dict[str, Any]]:
        """Return what a hospital's own model says about files."""
        words = ("predict", self.experiment().name, *map(str, inputs), "--json")
        said = feddc("hospital", *words, "--folder", str(self.hospital(name)))
        found: list[dict[str, Any]] = json.loads(said)
        return found


def hold_out(place: Path, decisions: Mapping[str, bool]) -> None:
    """Decide who is held out, by the patient's number, instead of the hospital's secret."""
    file = HeldOutFile(HospitalFolder(place).held_out_file)
    decided = file.read()
    for number, held_out in decisions.items():
        decided.recorded[decided.tag(f"patient {number}")] = held_out
    file.save(decided)


def describe(place: Path, values: Mapping[str, object], more: str = "") -> None:
    """Change lines of hospital.toml, and add to it."""
    file = place / "hospital.toml"
    text = file.read_text(encoding="utf-8")
    for key, value in values.items():
        line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
        text, count = re.subn(rf"(?m)^{key} = .*$", lambda _, line=line: line, text)
        assert count == 1, key
    file.write_text(f"{text}\n{more}", encoding="utf-8")


def confusion(classes: tuple[str, ...], pairs: Iterable[tuple[str, str]]) -> NDArray[np.int64]:
    """Count pairs of true and predicted class."""
    found = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for true, predicted in pairs:
        found[classes.index(true), classes.index(predicted)] += 1
    return found
