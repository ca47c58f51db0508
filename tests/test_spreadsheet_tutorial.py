"""docs/tutorials/spreadsheet.md: a spreadsheet goes through the page's steps to a prediction."""

import csv
import io
import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from benchmarks.support.processes import FEDDC, Processes, base_environment, free_port, wait_for
from client_app.hospital_folder import HospitalFolder
from operation.cli import app
from protocol.codebook import Codebook
from protocol.study.roster import Roster
from server_app.study.registration import control
from server_app.study.study_folder import Study
from tests.federation.federation import needs_nginx
from tests.snippets import ROOT, Snippet, under

PAGE = ROOT / "docs" / "tutorials" / "spreadsheet.md"
TABLE, WRITE, DESCRIBE = (
    "1. The table", "2. The coordinator writes the codebook", "3. The hospital describes its table"
)  # fmt: skip
OTHERS = ("Charite", "Mercy")
PATIENTS = 120


def feddc(*words: str, answer: str = "y\n" * 3) -> Result:
    done = CliRunner().invoke(app, list(words), input=answer)
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done


def words(snippet: Snippet, at: int = 0) -> list[str]:
    return snippet.commands[at][1:]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the coordinator's and St Mary's folder, with the tables of the page."""
    monkeypatch.chdir(tmp_path)
    german = under(PAGE, TABLE)[0].text.splitlines()[0]
    _write(tmp_path / "Patienten.csv", german, seed=0)
    _write(tmp_path / "sample.csv", "patient_id,age,creatinine,diabetes,dose,outcome", seed=1)
    return tmp_path


def _write(path: Path, header: str, seed: int) -> None:
    """Write patients with injured kidneys if old, ill before, and with much contrast agent."""
    rng = np.random.default_rng(seed)
    german = header.count(";") > 0
    lines = [header]
    for number in range(PATIENTS):
        age, dose = int(rng.integers(40, 90)), int(rng.integers(3))
        creatinine = rng.lognormal(0.1, 0.3)
        risk = (age - 65) / 12 + 2 * (creatinine - 1) + dose - 1 + rng.normal(0, 0.7)
        cells = [str(number), str(age), f"{creatinine:.2f}", "yes" if number % 4 else "no",
                 ("low", "middle", "high")[dose], ("stable", "injury")[int(risk > 1)]]  # fmt: skip
        if german:
            micromol = "k.A." if number % 12 == 0 else f"{creatinine / 0.0113:.1f}"
            cells[2] = micromol.replace(".", ",") if number % 12 else micromol
            cells[3] = {"yes": "ja", "no": "nein"}[cells[3]]
            cells[4] = {"low": "wenig", "middle": "mittel", "high": "hoch"}[cells[4]]
            cells[5] = {"stable": "stabil", "injury": "ANV"}[cells[5]]
            cells.append("Frau Müller" if number % 9 == 0 else "")
        lines.append((";" if german else ",").join(cells))
    path.write_bytes("\r\n".join(lines).encode("cp1252"))


def _prepared(place: Path, port: int = 8443) -> Study:
    """Run steps 2 to 4 for St Mary and two hospitals whose tables are the codebook's own."""
    make, agreed, sign = under(PAGE, WRITE)
    init = [word.replace("fl.example.org:8443", f"localhost:{port}") for word in words(make)]
    feddc(*init, "--listen", f"127.0.0.1:{port}", "--internal-port", str(port + 1))
    drafted = feddc(*words(make, 1))
    assert "The draft is in" in drafted.output
    study = Study.open(place / "study")
    draft = study.written_codebook()
    assert draft is not None
    codebook = Codebook.from_toml(agreed.text)
    kinds = [(column.name, column.kind) for column in codebook.columns]
    assert [(column.name, column.kind) for column in draft.columns] == kinds
    study.codebook_file.write_text(agreed.text, encoding="utf-8")
    assert codebook.fingerprint in feddc(*words(sign)).output

    here, described, enrol = under(PAGE, DESCRIBE)
    feddc(*words(here))
    _describe(place / "hospital" / "hospital.toml", described.text)
    feddc(*words(enrol))
    for seed, name in enumerate(OTHERS, start=2):
        folder = place / name
        feddc("hospital", "init", "--name", name, "--folder", str(folder))
        _write(folder / "patients.csv", "patient_id,age,creatinine,diabetes,dose,outcome", seed)
        _describe(folder / "hospital.toml", '[data]\ndata-dir = "patients.csv"\n')
        feddc("coordinator", "enrol", str(folder / f"{name}.hospital.json"))
    feddc(*words(enrol, 1))
    join, _ = under(PAGE, "4. Join, and check")
    feddc(*words(join))
    for name in OTHERS:
        feddc("hospital", "join", str(place / "study/for-hospitals/roster"), "--folder", name)
    return study


def _describe(file: Path, section: str) -> None:
    """Replace the keys of [data] that the page names, and add its other sections."""
    text = file.read_text(encoding="utf-8")
    own, _, columns = section.partition("\n[data.columns")
    for line in own.splitlines()[1:]:
        if key := line.split(" = ")[0]:
            text, count = re.subn(rf"(?m)^{re.escape(key)} = .*$", lambda _, x=line: x, text)
            assert count == 1
    text = re.sub(r'(?m)^approval = "each"$', 'approval = "automatic"', text)
    more = f"\n[data.columns{columns}\n" if columns else ""
    file.write_text(text.replace("\n[policy]", f"{more}\n[policy]"), encoding="utf-8")


def test_the_table_of_the_page_passes_the_check(place: Path) -> None:
    _prepared(place)
    join, shown = under(PAGE, "4. Join, and check")
    roster = Roster.from_signed((place / "study/for-hospitals/roster").read_bytes())
    codebook = HospitalFolder(place / "hospital").codebook(roster)
    assert codebook == Codebook.from_toml(under(PAGE, WRITE)[1].text)

    done = CliRunner().invoke(app, words(join, 1))
    assert "✗" not in done.output.replace("✗ user", "")
    assert "Müller" not in done.output
    data = json.loads(CliRunner().invoke(app, [*words(join, 1), "--json"]).stdout)["data"]
    assert (data["examples"], data["patients"]) == (PATIENTS, PATIENTS)
    columns = data["columns"]
    assert columns["creatinine"]["missing"] == 10
    assert abs(columns["creatinine"]["median_scales"]) < 1
    assert not any(counts["unknown"] or counts["clipped"] for counts in columns.values())
    # The page shows the same table, but for the numbers that the hospital's secret decides.
    assert _undrawn(shown.text) == _undrawn(done.output)


def _undrawn(text: str) -> list[str]:
    """Return the lines of check's tables; of those with held-out numbers only the names."""
    table = text[text.index("✓ data:") :].split("\n! ")[0]
    drawn = ("stable", "injury", "all")
    rows = [line for line in table.splitlines()[1:] if line.strip()]
    return [row.split()[0] if row.split()[0] in drawn else row.strip() for row in rows]


def test_a_forgotten_factor_is_noticed(place: Path) -> None:
    _prepared(place)
    file = place / "hospital" / "hospital.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("factor = 0.0113\n", ""))
    done = CliRunner().invoke(app, ["hospital", "check"])
    assert re.search(r"column 'creatinine': half of the values are \d+ scales", done.output)


@needs_nginx
@pytest.mark.slow
@pytest.mark.timing
def test_a_study_of_three_hospitals_ends_with_predictions(place: Path) -> None:
    port = free_port(3)
    study = _prepared(place, port)
    (place / "study" / "settings.toml").write_text(
        'model = "linear"\nrounds = 60\ndaisy-period = 10\naggregation-period = 20\n'
        "start-timeout = 300.0\n"
    )
    with Processes(place) as processes:
        for name in ("hospital", *OTHERS):
            processes.start(f"{name}.agent", [*FEDDC, "hospital", "serve", "--folder", name])
        _run("coordinator up")
        try:
            for name in ("hospital", *OTHERS):
                processes.start(f"{name}.net", [*FEDDC, "hospital", "connect", "--folder", name])
            api = control(study)
            wait_for(lambda: sum(n.is_online for n in api.nodes()) == 3, "SuperNodes", 300)
            _run("coordinator run --json")
        finally:
            _run("coordinator down")
    (experiment,) = (path.name for path in study.experiments.iterdir())
    table = (place / "Patienten.csv").read_bytes().splitlines()
    # The first twenty, without what happened to them.
    cut = [b";".join([*line.split(b";")[:5], b""]) for line in table[:21]]
    (place / "new-patients.csv").write_bytes(b"\r\n".join(cut))
    (predict,) = under(PAGE, "6. The model, and a prediction")
    ours = [word.replace("20260101-115900-1a2b3c", experiment) for word in words(predict)]
    rows = list(csv.DictReader(io.StringIO(feddc(*ours).stdout)))
    assert len(rows) == 20
    happened = {"stabil": "stable", "ANV": "injury"}
    truth = [happened[line.split(b";")[5].decode()] for line in table[1:21]]
    right = sum(row["prediction"] == outcome for row, outcome in zip(rows, truth, strict=True))
    assert right >= 14
    assert "models sent" in feddc("hospital", "status").output


def _run(command: str) -> None:
    subprocess.run(  # our own commands
        [*FEDDC, *shlex.split(command)], check=True, env=base_environment(), timeout=500
    )
