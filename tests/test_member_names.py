"""Names with letters beyond ASCII: from the command line to a sealed experiment."""

import csv
import json
import unicodedata
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from operation.cli import app
from protocol.messages import TrainLeg

NAMES = ("Aarhus", "Universitätsklinikum Köln", "Łódź")  # by code point: not as in a dictionary


def test_hospitals_with_umlauts_are_enrolled_and_join(tmp_path: Path) -> None:
    study = tmp_path / "study"
    _feddc("coordinator", "init", "--name", "Größe", "--address", "a.example:1", "--study", study)
    folders = {name: tmp_path / str(number) for number, name in enumerate(NAMES)}
    for name, folder in folders.items():
        # As some keyboards send it: letter and accent apart.
        typed = unicodedata.normalize("NFD", name)
        _feddc("hospital", "init", "--name", typed, "--study", "Größe", "--folder", folder)
        card = folder / f"{name}.hospital.json"
        fingerprint = json.loads(card.read_text())["fingerprint"]
        _feddc("coordinator", "enrol", card, "--study", study, "--fingerprint", fingerprint)
    said = _feddc("coordinator", "roster", "--study", study).stdout
    fingerprint = said.partition("fingerprint of this roster:\n")[2].split("\n")[0].strip()
    for name, folder in folders.items():
        said = _feddc(
            "hospital",
            "join",
            study / "for-hospitals" / "roster",
            "--folder",
            folder,
            "--fingerprint",
            fingerprint,
        ).stdout
        (line,) = [line for line in said.splitlines() if line.endswith("you")]
        assert line.startswith(name)
    typed = unicodedata.normalize("NFD", NAMES[1])
    _feddc("coordinator", "remove", typed, "--yes", "--study", study)
    assert sorted(path.stem for path in (study / "members").iterdir()) == [NAMES[0], NAMES[2]]


def test_hospitals_with_umlauts_train_in_a_sealed_experiment(tmp_path: Path, run_tiny: Any) -> None:
    with (tmp_path / "patients.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["clinic", "x", "y", "label"])
        for number in range(60):
            rows.writerow([NAMES[number % 3], number, number % 7, number // 3 % 2])

    run = run_tiny(
        dataset="csv",
        data_dir=str(tmp_path / "patients.csv"),
        hospital_column="clinic",
        split="natural",
        hospitals=3,
        examples=12,
        held_out=5,
        sealed=True,
    )

    assert run.summary["missing"] == {}
    assert run.summary["sealed"]
    handed = {r.recipient for _, r in run.grid.requests if isinstance(r, TrainLeg) and r.recipient}
    assert handed == set(NAMES)


def _feddc(*arguments: object) -> Result:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done
