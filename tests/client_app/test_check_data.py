"""`feddc hospital check` compares the data with the codebook; `status` says where things stand."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from client_app.state.audit_log import AuditLog
from client_app.state.sqlite_store import SqliteStore
from protocol.codebook import Codebook
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled

CODEBOOK = """
classes = ["0", "1"]

[[columns]]
name = "a"
kind = "number"
unit = "m"
range = [0, 4]
centre = 2
scale = 2

[[columns]]
name = "b"
kind = "number"
unit = "cm"
range = [0, 1000]
centre = 200
scale = 30

[[columns]]
name = "c"
kind = "category"
levels = ["0", "1"]
"""


def pin(hospital: Enrolled, text: str = CODEBOOK) -> None:
    codebook = Codebook.from_toml(text)
    hospital.folder.pin_codebook(codebook.signed(hospital.coordinator))


def check(hospital: Enrolled, *arguments: object) -> tuple[int, dict[str, Any]]:
    done = feddc("check", "--folder", hospital.folder.path, "--json", *arguments)
    return done.exit_code, json.loads(done.stdout)


def test_the_data_are_compared_with_the_codebook(enrolled: Enrolled) -> None:
    pin(enrolled)
    code, found = check(enrolled)
    assert code == 0
    data = found["data"]
    assert (data["examples"], data["patients"]) == (60, 60)
    assert data["train"]["0"] + data["held_out"]["0"] == 30
    # a is n % 7, b is n % 5 and c is n % 3, for n from 0 to 59.
    assert data["columns"]["a"]["clipped"] == sum(n % 7 > 4 for n in range(60))
    assert data["columns"]["a"]["median_scales"] == (np.median([n % 7 for n in range(60)]) - 2) / 2
    assert data["columns"]["c"]["unknown"] == 20
    texts = [f["text"] for f in found["findings"] if f["verdict"] == "warning"]
    (unit,) = (text for text in texts if "is the unit the codebook's?" in text)
    assert unit.startswith("column 'b': half of the values are 7 scales or more")
    assert any("column 'c': 20 values are none of the codebook's" in text for text in texts)
    assert any("column 'a'" in text and "clipped" in text for text in texts)

    shown = feddc("check", "--folder", enrolled.folder.path).stdout
    rows = [line.split() for line in shown.splitlines()]
    assert ["c", "0", "0", "20"] in rows
    assert ["patients", "60"] in rows


def test_a_unit_that_is_mapped_is_no_warning(enrolled: Enrolled) -> None:
    pin(enrolled)
    file = enrolled.folder.configuration
    text = file.read_text().replace("\n[policy]", "\n[data.columns.b]\nfactor = 100\n\n[policy]")
    file.write_text(text)
    _, found = check(enrolled)
    assert not any("unit" in finding["text"] for finding in found["findings"])


def test_all_problems_are_in_one_list_with_exit_code_2_and_without_a_cells_content(
    enrolled: Enrolled,
) -> None:
    pin(enrolled, CODEBOOK.replace('"a"', '"age"').replace('"c"', '"colour"'))
    data = enrolled.folder.path / "data" / "records.csv"
    data.write_text("patient_id,Age at visit,b,label\n1,2,Jane Doe,0\n2,3,4,Smith\n3,4,Jones,1\n")
    done = feddc("check", "--folder", enrolled.folder.path)
    assert done.exit_code == 2
    problems = [line for line in done.stdout.splitlines() if line.startswith("✗ data")]
    assert [problem.removeprefix(f"✗ data: {data}") for problem in problems] == [
        ": no column 'age'; the nearest are 'Age at visit', 'label'; "
        "name yours in [data.columns.age] of hospital.toml",
        ", line 2, column 'b': not a number (2 cells); correct it, or name what means missing to "
        "the coordinator",
        ": no column 'colour'; name yours in [data.columns.colour] of hospital.toml",
        ", line 3, column 'label': none of the classes 0, 1; map your own words with levels in "
        "[data.columns.label]",
    ]
    served = feddc("serve", "--folder", enrolled.folder.path)
    assert served.exit_code == 2
    for problem in problems:
        assert problem.removeprefix("✗ data: ") in served.stderr
    for secret in ("Jane", "Smith", "Jones"):
        assert secret not in done.output + served.output


def test_one_class_and_few_held_out_are_warned_about(enrolled: Enrolled) -> None:
    pin(enrolled)
    data = enrolled.folder.path / "data" / "records.csv"
    data.write_text("a,b,c,label\n" + "".join(f"{n % 4},200,1,0\n" for n in range(40)))
    _, found = check(enrolled)
    texts = [finding["text"] for finding in found["findings"]]
    train = found["data"]["train"]["0"]
    assert f"only the class 0 ({train}) to train on" in texts
    assert any("no AUC is computed below 5 of a class" in text for text in texts)
    assert any(text.startswith("36 exact and 0 near copies") for text in texts)


@pytest.fixture
def images(enrolled: Enrolled) -> Enrolled:
    """A hospital with 30 images, one there twice, one brighter copy, by a codebook."""
    rng = np.random.default_rng(0)
    folder = enrolled.folder.path / "data" / "scans"
    for number in range(30):
        place = folder / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(40, 200, (16, 16), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number:02}.png")
        if number == 0:
            Image.fromarray(pixels).save(place / "copy.png")
            Image.fromarray(pixels + 20).save(place / "brighter.png")
    pin(enrolled, 'classes = ["0", "1"]\n[images]\nview = "slice"\nsize = [16, 16]\n')
    enrolled.set("dataset", '"image-folder"')
    enrolled.set("data-dir", '"data/scans"')
    return enrolled


def test_copies_of_images_are_counted_and_previewed(images: Enrolled, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    _, found = check(images, "--preview", sheet)
    data = found["data"]
    assert (data["examples"], data["exact_copies"], data["near_copies"]) == (32, 1, 1)
    assert data["patients"] == 31
    assert stat.S_IMODE(sheet.stat().st_mode) == 0o600
    with Image.open(sheet) as seen:
        assert seen.size[0] == 8 * 17 - 1


def test_who_is_in_train_and_test_is_counted_and_which_folder_wins(images: Enrolled) -> None:
    rng = np.random.default_rng(1)
    folder = images.folder.path / "data" / "parts"
    for part, count in (("train", 5), ("test", 3)):
        for name in ("0", "1"):
            place = folder / part / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(40, 200, (16, 16), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    # The same image, so the same patient.
    (folder / "train" / "1" / "copy.png").write_bytes(
        (folder / "test" / "1" / "0.png").read_bytes()
    )
    images.set("data-dir", '"data/parts"')
    _, found = check(images)
    texts = [finding["text"] for finding in found["findings"]]
    (line,) = [text for text in texts if "test/ wins" in text]
    assert line.startswith("1 images in train/ are of patients, or copies of images, in test/")
    assert found["data"]["train"] == {"0": 5, "1": 5}
    assert found["data"]["held_out"] == {"0": 3, "1": 3}


def test_a_preview_of_a_table_is_refused(enrolled: Enrolled, tmp_path: Path) -> None:
    done = feddc("check", "--folder", enrolled.folder.path, "--preview", tmp_path / "sheet.png")
    assert done.exit_code == 2
    assert "--preview is for images" in done.stderr


def test_status_before_any_request_and_after_some(enrolled: Enrolled) -> None:
    before = feddc("status", "--folder", enrolled.folder.path)
    assert before.exit_code == 0
    assert "last contact  never" in before.stdout
    assert "No coordinator has asked for an experiment yet." in before.stdout

    store = SqliteStore(enrolled.folder.store_file)
    log = AuditLog(store, enrolled.folder.identity())
    log.append({"digest": "22", "bytes": 17}, {"kind": "refusal", "refusal": "malformed"})
    for spent in (1.25, 2.5):
        log.append({"kind": "train-leg"}, {"kind": "trained", "epsilon": spent})
    log.append({"kind": "hello"}, {"kind": "introduction"})
    store.close()
    found = json.loads(feddc("status", "--folder", enrolled.folder.path, "--json").stdout)
    assert found["last_contact"] is not None
    assert found["experiments"] == []
    assert found["epsilon"] == 2.5  # over all experiments, as of the last leg with noise
    shown = feddc("status", "--folder", enrolled.folder.path).stdout
    assert "privacy       ε = 2.5 for all releases with noise" in shown
