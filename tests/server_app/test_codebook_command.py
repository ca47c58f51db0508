"""`feddc coordinator codebook`: drafted, completed, signed; what was edited since is not used."""

from pathlib import Path

import pytest

from operation.config import SettingsError
from protocol.codebook import Codebook
from server_app.experiment.experiment_folder import parse, with_codebook
from server_app.study.study_folder import Study, StudyError
from tests.server_app.commands import feddc, initialised

REDCAP = """\
"Variable / Field Name","Form Name","Section Header","Field Type","Field Label",\
"Choices, Calculations, OR Slider Labels","Field Note",\
"Text Validation Type OR Show Slider Number","Text Validation Min","Text Validation Max",\
Identifier?,"Branching Logic (Show field only if...)","Required Field?","Custom Alignment",\
"Question Number (surveys only)","Matrix Group Name","Matrix Ranking?","Field Annotation"
record_id,f,,text,Record,,,,,,,,,,,,,
surname,f,,text,Surname,,,,,,y,,,,,,,
age,f,,text,"Age, at <b>visit</b>",,,integer,18,100,,,,,,,,
bmi,f,,calc,BMI,round([weight]/[height]^2),,,,,,,,,,,,
stage,f,,radio,"Stage","1, early | 2, late | 9, other",,,,,,,,,,,,
smoker,f,,yesno,Smoker,,,,,,,,,,,,,
drugs,f,,checkbox,Drugs,"1, statin | 2, aspirin",,,,,,,,,,,,
visit,f,,text,Visit,,,date_ymd,,,,,,,,,,
outcome,f,,dropdown,Outcome,"0, alive | 1, dead",,,,,,,,,,,,
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return initialised(tmp_path / "study")


def _sample(tmp_path: Path) -> Path:
    rows = ["patient_id;Alter;Geschlecht;Raucher;Kreatinin;Notiz;Befund"]
    for n in range(40):
        creatinine = "k.A." if n % 8 == 0 else f"{0.6 + n / 50:.2f}".replace(".", ",")
        rows.append(
            f"{n};{30 + n};{'mw'[n % 2]};{('ja', 'nein')[n % 3 > 0]};{creatinine};"
            f"Frau Müller {n};{('gesund', 'krank')[n % 2]}"
        )
    path = tmp_path / "Übersicht.csv"
    path.write_bytes("\r\n".join(rows).encode("cp1252"))
    return path


def test_a_draft_from_a_sample_table_is_a_codebook_after_review(
    study: Study, tmp_path: Path
) -> None:
    done = feddc(
        "codebook", "--from", _sample(tmp_path), "--label", "Befund", "--study", study.folder
    )
    assert done.exit_code == 0, done.output
    codebook = study.written_codebook()
    assert codebook is not None
    assert codebook.classes == ("gesund", "krank")
    assert codebook.label == "Befund"
    kinds = {column.name: column.kind for column in codebook.columns}
    # Neither the patients' numbers nor the free text with their names.
    assert kinds == {
        "Alter": "number", "Geschlecht": "category", "Raucher": "yes-no", "Kreatinin": "number",
    }  # fmt: skip
    age = codebook.columns[0].model_dump()
    assert age["centre"] == pytest.approx(49.5, abs=1)
    assert age["range"][0] < 30
    assert age["range"][1] > 69
    assert "Müller" not in study.codebook_file.read_text(encoding="utf-8")
    again = feddc("codebook", "--from", _sample(tmp_path), "--study", study.folder)
    assert (again.exit_code, "never overwritten" in again.stderr) == (2, True)


def test_a_draft_from_a_redcap_dictionary_names_what_is_still_to_fill_in(
    study: Study, tmp_path: Path
) -> None:
    dictionary = tmp_path / "dictionary.csv"
    dictionary.write_text(REDCAP)
    done = feddc("codebook", "--from", dictionary, "--label", "outcome", "--study", study.folder)
    assert done.exit_code == 0, done.output
    assert "Still to fill in: columns.1.number.range: Field required" in done.output

    text = study.codebook_file.read_text(encoding="utf-8")
    assert "surname" not in text
    filled = text.replace(
        "# BMI: fill in range, centre and scale\n[[columns]]",
        "[[columns]]\nrange = [10, 60]\ncentre = 26\nscale = 5",
    )
    codebook = Codebook.from_toml(filled)
    assert codebook.classes == ("0", "1")
    assert [(column.name, column.kind) for column in codebook.columns] == [
        ("age", "number"), ("bmi", "number"), ("stage", "category"), ("smoker", "yes-no"),
        ("drugs___1", "yes-no"), ("drugs___2", "yes-no"),
    ]  # fmt: skip
    assert codebook.columns[0].model_dump()["range"] == (18.0, 100.0)
    assert codebook.columns[2].model_dump()["levels"] == ("1", "2", "9")


def test_a_draft_without_the_class_names_the_columns_there_are(
    study: Study, tmp_path: Path
) -> None:
    done = feddc("codebook", "--from", _sample(tmp_path), "--study", study.folder)
    assert done.exit_code == 2
    assert "no column 'label' with the class; choose one with --label" in done.stderr
    assert "Geschlecht" in done.stderr
    assert "Müller" not in done.stderr
    assert not study.codebook_file.exists()


CODEBOOK = """
classes = ["healthy", "sick"]
[[columns]]
name = "age"
kind = "number"
range = [18, 100]
centre = 55
scale = 10
"""


def test_the_codebook_is_shown_and_signed(study: Study) -> None:
    study.codebook_file.write_text(CODEBOOK)
    done = feddc("codebook", "--study", study.folder)
    assert done.exit_code == 0, done.output
    codebook = study.codebook()
    assert codebook is not None
    assert f"    {codebook.fingerprint}" in done.output
    assert "(value - 55) / 10" in done.output
    signed = study.signed_codebook_file.read_bytes()
    assert Codebook.from_signed(signed, study.identity().public) == codebook


def test_a_codebook_that_was_edited_after_signing_starts_no_experiment(study: Study) -> None:
    study.codebook_file.write_text(CODEBOOK)
    with pytest.raises(StudyError, match="is not signed yet"):
        study.codebook()
    study.sign_codebook()
    study.codebook_file.write_text("# a comment changes nothing\n" + CODEBOOK)
    assert study.codebook() is not None
    study.codebook_file.write_text(CODEBOOK.replace("55", "50"))
    with pytest.raises(StudyError, match="was edited after it was signed"):
        study.codebook()
    study.codebook_file.unlink()
    with pytest.raises(StudyError, match="is missing, but a codebook was signed"):
        study.codebook()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("classes = [", "not TOML"),
        ('classes = ["a", "b"]', "not both"),
        (CODEBOOK.replace("scale = 10", "scale = 0"), "columns.0.number.scale"),
    ],
)
def test_a_wrong_codebook_is_not_signed(text: str, says: str, study: Study) -> None:
    study.codebook_file.write_text(text)
    done = feddc("codebook", "--study", study.folder)
    assert done.exit_code == 2
    assert f"{study.codebook_file}: " in done.stderr
    assert says in done.stderr
    assert not study.signed_codebook_file.exists()


def test_the_task_is_the_codebooks() -> None:
    codebook = Codebook.from_toml(CODEBOOK)
    _, task = parse(with_codebook({}, codebook), hospitals=3)
    assert (task.shape, task.classes) == ((2,), 2)
    assert with_codebook({"classes": 2, "input-shape": 2}, codebook)["classes"] == 2
    for wrong in ({"classes": 3}, {"input-shape": "5"}):
        with pytest.raises(SettingsError, match="but the codebook has 2: leave it out"):
            with_codebook(wrong, codebook)
