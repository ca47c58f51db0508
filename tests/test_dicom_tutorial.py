"""docs/tutorials/dicom.md: a folder as the page shows it goes through its steps."""

import json
import tomllib
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from typer.testing import CliRunner

from client_app.final_models.model_folder import FinalModels
from client_app.final_models.saved_network import new_network
from client_app.hospital_folder import HospitalFolder
from client_app.state.held_out_file import HeldOutFile
from learning.data.medical.labelled_images import LabelSource, read_labelled_images
from learning.data.partition.held_out import HeldOut
from learning.local_data import load_dataset, load_own
from learning.settings import LocalSettings
from operation.cli import app
from protocol.codebook import Codebook
from protocol.descriptor import Descriptor
from protocol.model_bytes import ModelState
from server_app.config.run_config import Settings
from tests.client_app.test_evaluate_command import AGREED
from tests.learning.data.medical.made_images import dicom_image, save
from tests.snippets import ROOT, under

PAGE = ROOT / "docs" / "tutorials" / "dicom.md"
FEDDC = CliRunner()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the export of step 2: 60 X-rays of 30 patients, and a spreadsheet."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    book = openpyxl.Workbook()
    book.active.append(["Accession Number", "Befund"])
    for number in range(60):
        pixels = rng.normal(1500, 200, (64, 64))
        pixels[20:40, 20:40] += 800 * (number % 2)
        made = dicom_image(
            pixels.clip(0, 4095).astype(np.uint16),
            BitsStored=12,
            PatientID=f"{1000 + number // 2}",
            AccessionNumber=f"A{number:04}",
        )
        save(made, tmp_path / "export" / f"{number // 10:03}" / f"IM{number:06}")
        book.active.append([f"A{number:04}", ("normal", "pneumonia")[number % 2]])
    book.save(tmp_path / "export" / "labels.xlsx")
    codebook = under(PAGE, "3. What the study has agreed on")[0].text
    (tmp_path / "codebook.toml").write_text(codebook)
    return tmp_path


def described(place: Path) -> dict[str, object]:
    """Run `init`, and write what the page says into hospital.toml."""
    init, data, _ = under(PAGE, "4. Describe your data")
    ((_, *words),) = init.commands
    assert FEDDC.invoke(app, words).exit_code == 0
    file = place / "hospital" / "hospital.toml"
    values: dict[str, object] = tomllib.loads(data.text)["data"]
    lines = []
    for line in file.read_text().splitlines():
        key = line.split(" = ")[0]
        wanted = [text for text in data.text.splitlines() if text.split(" = ")[0] == key]
        lines.append(wanted[0] if wanted and " = " in line else line)
    file.write_text("\n".join(lines) + "\n")
    return values


def test_check_counts_the_examples_of_the_export(place: Path) -> None:
    described(place)
    # A random key holds out four or fewer of the 60 now and then, which is a warning.
    HeldOutFile(HospitalFolder(place / "hospital").held_out_file).save(HeldOut(bytes([1]) * 32))
    check, _ = under(PAGE, "5. Check")
    ((_, *words),) = check.commands
    result = FEDDC.invoke(app, words)
    (line,) = [line for line in result.output.splitlines() if line.startswith("✓ data:")]
    numbers = [int(word) for word in line.split() if word.isdigit()]
    assert sum(numbers[:2]) == 60
    assert "examples to train on" in line
    cached = place / "hospital" / "state" / "images"
    assert len([p for p in cached.rglob("*") if p.is_file() and p.name != "index.json"]) == 60


def test_the_codebooks_of_the_page_are_valid_and_give_their_shape(place: Path) -> None:
    codebook = Codebook.from_toml((place / "codebook.toml").read_text())
    (volume,) = under(PAGE, "Volumes")
    head = 'classes = ["a", "b"]\n'
    assert Codebook.from_toml(head + volume.text).shape == (1, 32, 64, 64)
    local = LocalSettings.model_validate(
        {"dataset": "medical-folder", "data-dir": str(place / "export"), "label-column": "Befund"}
    )
    own = load_own(local, "St Mary", codebook=codebook)
    assert own.train.features.shape[1:] == codebook.shape == (1, 32, 32)
    assert own.classes == codebook.classes


def test_own_words_are_mapped_as_the_page_says(place: Path) -> None:
    _, _, mapping = under(PAGE, "4. Describe your data")
    described(place)
    file = place / "hospital" / "hospital.toml"
    file.write_text(file.read_text() + mapping.text)
    from client_app.configuration import Configuration

    label = Configuration.read(file).data.columns["label"]
    assert label.column == "Befund"
    assert label.levels == {"o.B.": "normal", "Pneumonie": "pneumonia"}


def test_the_rehearsal_s_settings_load_the_images(place: Path) -> None:
    (rehearsal,) = under(PAGE, "6. Rehearse on your own machine")
    ((_, _, *words),) = rehearsal.commands
    values: dict[str, bool | int | float | str] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        key, text = value.split("=") if option == "--set" else (option.removeprefix("--"), value)
        values[key] = int(text) if text.isdigit() else float(text) if "." in text[:2] else text
    values.pop("run-dir")
    settings = Settings.from_run_config(values, source="the page")
    dataset = load_dataset(settings.local, 0)
    assert dataset.shape == (1, 32, 32)
    assert len(dataset.train) + len(dataset.test) == 60


def test_predictions_are_those_of_the_features_trained_on(place: Path) -> None:
    """The page's command, with a model of the page's codebook, on ten files of one folder."""
    described(place)
    codebook = Codebook.from_toml((place / "codebook.toml").read_text())
    (command,) = under(PAGE, "7. Predict")
    ((_, *words),) = command.commands
    agreed = Descriptor(
        **AGREED
        | {
            "experiment": words[2],
            "shape": codebook.shape,
            "training": {"model": "mnist-cnn"},
            "codebook": codebook.digest,
        }
    )
    network = new_network(agreed, seed=3, device="cpu")
    models = FinalModels(HospitalFolder(place / "hospital").models, codebook)
    models.keep(agreed, ModelState(*network.arrays()), None)

    result = FEDDC.invoke(app, [*words, "--json"])

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert codebook.images is not None
    trained_on = read_labelled_images(
        place / "export", codebook.images, LabelSource(label_column="Befund")
    ).examples.features
    expected = network.probabilities(trained_on[:10])  # folder 000, by name
    got = [[one["probabilities"][name] for name in codebook.classes] for one in found]
    assert [one["input"] for one in found] == [f"export/000/IM{number:06}" for number in range(10)]
    np.testing.assert_allclose(got, expected, atol=1e-9)


@pytest.mark.slow
def test_the_rehearsal_runs(place: Path) -> None:
    (rehearsal,) = under(PAGE, "6. Rehearse on your own machine")
    ((_, *words),) = rehearsal.commands
    result = FEDDC.invoke(app, words)
    assert result.exit_code == 0, result.output
    assert (place / "runs" / "rehearsal" / "model.safetensors").is_file()
