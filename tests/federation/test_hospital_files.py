"""From files as hospitals have them to a model, its evaluation and predictions, by the commands."""

import re
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import openpyxl
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

from tests.federation.federation import federation, needs_nginx
from tests.federation.files_study import FilesStudy, confusion, describe, hold_out
from tests.learning.data.medical.made_images import ct_slice, save, save_series
from tests.learning.data.medical.test_dicom import jpeg_lossless

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]

CLASSES = ("well", "ill")
PATIENTS = 24
HELD_OUT = {number: number % 4 == 0 for number in range(PATIENTS)}

# --- tables ---------------------------------------------------------------------------------------

ROWS = """
classes = ["well", "ill"]
label = "outcome"
missing = ["k.A."]
[[columns]]
kind = "number"
name = "age"
unit = "years"
range = [0, 120]
centre = 60
scale = 15
[[columns]]
kind = "number"
name = "Größe"
unit = "m"
range = [1.0, 2.5]
centre = 1.7
scale = 0.1
"""


def rows(seed: int) -> list[tuple[int, int, float | None, str]]:
    """Return number, age, height and outcome: the older are ill."""
    rng = np.random.default_rng(seed)
    ages = rng.integers(30, 90, PATIENTS)
    heights = [None if n % 9 == 0 else round(float(rng.normal(1.7, 0.1)), 2) for n in HELD_OUT]
    return [(n, int(ages[n]), heights[n], CLASSES[int(ages[n] > 60)]) for n in HELD_OUT]


HEADER = ("patient", "age", "Größe", "outcome")


def csv_of(place: Path) -> None:
    lines = [";".join(HEADER)]
    for number, age, height, outcome in rows(1):
        text = "k.A." if height is None else str(height).replace(".", ",")
        lines.append(f"{number};{age};{text};{outcome}")
    write(place, "patients.csv", "\r\n".join(lines).encode("cp1252"))


def xlsx_of(place: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(HEADER)
    for row in rows(2):
        book.active.append(row)
    write(place, "patients.xlsx", b"")
    book.save(place / "data" / "patients.xlsx")


def parquet_of(place: Path) -> None:
    columns = dict(zip(HEADER, map(list, zip(*rows(3), strict=True)), strict=True))
    write(place, "patients.parquet", b"")
    pyarrow.parquet.write_table(pyarrow.table(columns), place / "data" / "patients.parquet")


def write(place: Path, name: str, content: bytes) -> None:
    (place / "data").mkdir()
    (place / "data" / name).write_bytes(content)
    describe(place, {"data-dir": f"data/{name}"})
    hold_out(place, {str(number): held for number, held in HELD_OUT.items()})


def test_a_csv_file_a_spreadsheet_and_parquet_become_one_model() -> None:
    files = {"Charité": csv_of, "Mercy": xlsx_of, "St Mary": parquet_of}
    settings = {"model": "linear", "rounds": 40, "aggregation-period": 10, "learning-rate": 0.3}
    with federation(FilesStudy, codebook=ROWS, settings=settings, hospitals=files) as study:
        outcome = study.run()
        assert outcome.code == 0, outcome.errors
        for seed, name in enumerate(study.names, start=1):
            (path,) = (study.hospital(name) / "data").iterdir()
            predicted = study.predictions(name, path)
            truth = [row[3] for row in rows(seed)]
            said = [one["prediction"] for one in predicted]
            held = [n for n, is_held in HELD_OUT.items() if is_held]
            expected = confusion(CLASSES, [(truth[n], said[n]) for n in held])
            np.testing.assert_array_equal(study.evaluation(name), expected)
            # Whoever is older is ill: a linear model has learned that.
            assert sum(a == b for a, b in zip(truth, said, strict=True)) >= 0.8 * PATIENTS


# --- volumes --------------------------------------------------------------------------------------

VOLUMES = """
classes = ["well", "ill"]
[images]
view = "volume"
size = [4, 8, 8]
intensity = "hu-window"
window = [-1000, 1000]
"""


def volume(number: int, seed: int) -> NDArray[np.int16]:
    """Return an examination; every second patient has a dense lesion."""
    rng = np.random.default_rng([seed, number])
    made = rng.integers(-800, -200, (4, 8, 8), dtype=np.int16)
    if number % 2:
        made[1:3, 2:6, 2:6] = 900
    return made


def shuffled_series(place: Path) -> None:
    """CT series with their slices in any order; labels by patient."""
    images = place / "data"
    for number in HELD_OUT:
        save_series(
            images / f"p{number:02}", volume(number, 1), order=[2, 0, 3, 1], PatientID=f"{number}"
        )
    lines = [f"{number};{CLASSES[number % 2]}" for number in HELD_OUT]
    (images / "labels.csv").write_text("\n".join(["patient;label", *lines]))
    images_described(place)


def compressed_series(place: Path) -> None:
    """CT series in JPEG Lossless, as an archive sends them, in one folder for each class."""
    for number in HELD_OUT:
        made = volume(number, 2)
        folder = place / "data" / CLASSES[number % 2] / f"p{number:02}"
        folder.mkdir(parents=True)
        for index in range(len(made)):
            common: dict[str, Any] = {
                "SeriesInstanceUID": f"1.2.{number + 1}",
                "PatientID": f"{number}",
            }
            (folder / f"{index}").write_bytes(jpeg_lossless(ct_slice(made, index, **common), place))
    for leftover in ("plain", "packed"):
        (place / leftover).unlink()
    scout = ct_slice(volume(0, 2), 0, ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    save(scout, place / "data" / "well" / "p00" / "scout")
    images_described(place)


def nifti(place: Path) -> None:
    """NIfTI files, with a spreadsheet that names them."""
    images = place / "data"
    images.mkdir()
    book = openpyxl.Workbook()
    book.active.append(["file", "patient", "label"])
    for number in HELD_OUT:
        affine = np.diag([-0.75, -0.5, 2.5, 1.0])
        path = images / f"p{number:02}.nii.gz"
        values = np.ascontiguousarray(volume(number, 3).T)
        nibabel.Nifti1Image(values, affine).to_filename(path)
        book.active.append([path.name, f"{number}", CLASSES[number % 2]])
    book.save(images / "labels.xlsx")
    images_described(place)


def images_described(place: Path) -> None:
    describe(place, {"dataset": "medical-folder", "models": ["cnn-3d"]})
    hold_out(place, {str(number): held for number, held in HELD_OUT.items()})


def test_series_compressed_series_and_nifti_become_one_model() -> None:
    files = {"Charite": shuffled_series, "Mercy": compressed_series, "St Mary": nifti}
    settings = {
        "model": "cnn-3d", "model-options": '{"filters": [4]}', "optimizer": "adam",
        "learning-rate": 0.02, "rounds": 40, "daisy-period": 2, "aggregation-period": 8,
    }  # fmt: skip
    with federation(FilesStudy, codebook=VOLUMES, settings=settings, hospitals=files) as study:
        outcome = study.run()
        assert outcome.code == 0, outcome.errors
        for name in study.names:
            predicted = study.predictions(name, study.hospital(name) / "data")
            said = {number_in(one["input"]): one["prediction"] for one in predicted}
            assert said.keys() == HELD_OUT.keys()
            truth = {number: CLASSES[number % 2] for number in HELD_OUT}
            held = [n for n, is_held in HELD_OUT.items() if is_held]
            expected = confusion(CLASSES, [(truth[n], said[n]) for n in held])
            np.testing.assert_array_equal(study.evaluation(name), expected)
            assert sum(truth[n] == said[n] for n in said) >= 0.8 * PATIENTS


def number_in(path: str) -> int:
    (number,) = re.findall(r"/p(\d\d)", path)
    return int(number)
