"""`feddc hospital predict`: what it says about held-out files is what was evaluated."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from client_app.final_models.evaluation import evaluate_model
from client_app.final_models.model_folder import FinalModels, ModelFolder
from client_app.final_models.saved_network import SavedNetwork, new_network
from learning.data.partition.held_out import KEY_BYTES, HeldOut
from learning.data.tables.rows import read_rows
from learning.evaluation import evaluate_predictions
from learning.local_data import load_own
from learning.settings import LocalSettings
from protocol.codebook import Codebook
from protocol.descriptor import Descriptor
from protocol.model_bytes import ModelState
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled
from tests.client_app.test_evaluate_command import AGREED

ROWS = Codebook.from_toml(
    """
    classes = ["benign", "malignant"]
    label = "diagnosis"
    [[columns]]
    kind = "number"
    name = "age"
    unit = "years"
    range = [0, 120]
    centre = 60
    scale = 15
    [[columns]]
    kind = "category"
    name = "sex"
    levels = ["female", "male"]
    """
)
IMAGES_TOML = """
    classes = ["no", "yes"]
    [images]
    view = "slice"
    size = [8, 8]
    centre = 0.4
    scale = 0.3
    """
IMAGES = Codebook.from_toml(IMAGES_TOML)


def keep(enrolled: Enrolled, codebook: Codebook | None, shape: tuple[int, ...]) -> ModelFolder:
    digest = None if codebook is None else codebook.digest
    agreed = Descriptor(**(AGREED | {"shape": shape, "rounds": 5, "codebook": digest}))
    model = ModelState(*new_network(agreed, seed=3, device="cpu").arrays())
    return FinalModels(enrolled.folder.models, codebook).keep(agreed, model, None)


def table(count: int) -> list[list[str]]:
    rng = np.random.default_rng(4)
    return [
        [
            str(20 + int(rng.integers(60))),
            ["female", "male", "k.A."][n % 3],
            ["benign", "malignant"][n % 2],
        ]
        for n in range(count)
    ]


def write_table(path: Path, rows: list[list[str]], header: str = "age;sex;diagnosis") -> Path:
    path.write_text("\n".join([header, *(";".join(row) for row in rows)]) + "\n")
    return path


@pytest.fixture
def rows_model(enrolled: Enrolled) -> ModelFolder:
    return keep(enrolled, ROWS, ROWS.shape)


def probabilities(output: str, classes: tuple[str, ...]) -> np.ndarray:
    return np.array([[one["probabilities"][c] for c in classes] for one in json.loads(output)])


def test_predictions_for_held_out_rows_are_those_of_the_saved_evaluation(
    enrolled: Enrolled, rows_model: ModelFolder, tmp_path: Path
) -> None:
    lines = table(80)
    data = write_table(tmp_path / "all.csv", lines)
    local = LocalSettings.parse({"dataset": "csv", "data-dir": str(data)}, source="test")
    evaluate_model(rows_model, load_own(local, "here", codebook=ROWS), device="cpu", alone=False)
    saved = rows_model.evaluation
    assert saved is not None

    rows = read_rows(data, ROWS, {})
    _, test = HeldOut(bytes(KEY_BYTES)).set_apart(rows.identities, rows.examples.groups, 0.2)
    held_out = write_table(tmp_path / "held-out.csv", [lines[row] for row in test])
    done = feddc("predict", "e1", held_out, "--json", "--folder", enrolled.folder.path)
    assert done.exit_code == 0, done.output
    labels = np.array([ROWS.classes.index(lines[row][2]) for row in test])
    again = evaluate_predictions(probabilities(done.stdout, ROWS.classes), labels, ROWS.classes)
    assert json.loads(json.dumps(again.as_dict())) == saved["study"]


def test_predictions_for_held_out_images_are_those_of_the_saved_evaluation(
    enrolled: Enrolled, tmp_path: Path
) -> None:
    kept = keep(enrolled, IMAGES, IMAGES.shape)
    rng = np.random.default_rng(2)
    for part, count in (("train", 4), ("test", 6)):
        for name in IMAGES.classes:
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for n in range(count):
                pixels = rng.integers(0, 256, size=(20, 30), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"ä {n}.png")
    root = tmp_path / "images"
    local = LocalSettings.parse({"dataset": "image-folder", "data-dir": str(root)}, source="test")
    evaluate_model(kept, load_own(local, "here", codebook=IMAGES), device="cpu", alone=False)

    saved = kept.evaluation
    assert saved is not None
    done = feddc("predict", "e1", root / "test", "--json", "--folder", enrolled.folder.path)
    assert done.exit_code == 0, done.output
    labels = np.array([0] * 6 + [1] * 6)  # by name: no, yes
    again = evaluate_predictions(probabilities(done.stdout, IMAGES.classes), labels, IMAGES.classes)
    assert json.loads(json.dumps(again.as_dict())) == saved["study"]


def test_a_table_a_csv_file_and_json_say_the_same(
    enrolled: Enrolled, rows_model: ModelFolder, tmp_path: Path
) -> None:
    data = write_table(tmp_path / "new.csv", [["44", "male"], ["71", "k.A."]], "age;sex")

    def run(*options: str) -> str:
        done = feddc("predict", rows_model.path, data, *options, "--folder", enrolled.folder.path)
        assert done.exit_code == 0, done.output
        return done.stdout

    first, second = json.loads(run("--json"))
    rows = list(csv.reader(io.StringIO(run("--csv"))))
    assert rows[0] == ["input", "prediction", "benign", "malignant"]
    assert rows[1][:2] == [f"{data}, line 2", first["prediction"]]
    assert [float(cell) for cell in rows[2][2:]] == list(second["probabilities"].values())
    assert sum(second["probabilities"].values()) == pytest.approx(1)
    shown = run().splitlines()
    assert shown[0].split() == ["input", "prediction", "benign", "malignant"]
    assert f"{first['probabilities']['benign']:.3f}" in shown[1]


def test_another_codebook_is_refused_with_both_digests(
    enrolled: Enrolled, rows_model: ModelFolder, tmp_path: Path
) -> None:
    data = write_table(tmp_path / "new.csv", [["44", "male"]], "age;sex")
    other = tmp_path / "codebook.toml"
    other.write_text(IMAGES_TOML)
    arguments = ("predict", "e1", data, "--folder", enrolled.folder.path)
    refused = feddc(*arguments, "--codebook", other)
    assert refused.exit_code == 2
    assert IMAGES.digest.hex() in refused.stderr
    assert ROWS.digest.hex() in refused.stderr
    assert not refused.stdout

    # The same if somebody has exchanged the file beside the model.
    own = rows_model.path / "codebook.json"
    assert feddc(*arguments, "--codebook", own).exit_code == 0
    own.write_bytes(IMAGES.content)
    exchanged = feddc(*arguments)
    assert exchanged.exit_code == 2
    assert IMAGES.digest.hex() in exchanged.stderr
    assert ROWS.digest.hex() in exchanged.stderr


def without_sex(folder: Path) -> list[Path]:
    return [write_table(folder / "new.csv", [["44"]], "age")]


def text_for_age(folder: Path) -> list[Path]:
    return [write_table(folder / "new.csv", [["old", "male"]], "age;sex")]


def nothing_there(folder: Path) -> list[Path]:
    return [folder / "missing.csv", folder / "gone.csv"]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (without_sex, ["no column 'sex'"]),
        (text_for_age, ["line 2, column 'age': not a number"]),
        (nothing_there, ["missing.csv", "gone.csv"]),
    ],
)
def test_bad_input_is_one_line_without_cells_and_code_2(
    inputs: Callable[[Path], list[Path]],
    said: list[str],
    enrolled: Enrolled,
    rows_model: ModelFolder,
    tmp_path: Path,
) -> None:
    done = feddc("predict", "e1", *inputs(tmp_path), "--folder", enrolled.folder.path)
    assert done.exit_code == 2
    for text in said:
        assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert "old" not in done.stderr


def test_rows_without_a_codebook_are_not_predicted(enrolled: Enrolled, tmp_path: Path) -> None:
    keep(enrolled, None, (2,))
    data = write_table(tmp_path / "new.csv", [["44", "1"]], "age;sex")
    done = feddc("predict", "e1", data, "--folder", enrolled.folder.path)
    assert done.exit_code == 2
    assert "the study had no codebook" in done.stderr


def test_a_file_that_is_no_image_is_named(enrolled: Enrolled, tmp_path: Path) -> None:
    keep(enrolled, IMAGES, IMAGES.shape)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    for given in ("empty", "cut.png", "missing.png"):
        done = feddc("predict", "e1", tmp_path / given, "--folder", enrolled.folder.path)
        assert done.exit_code == 2
        assert given in done.stderr


def test_dicom_files_get_the_predictions_that_were_evaluated(
    enrolled: Enrolled, tmp_path: Path
) -> None:
    pytest.importorskip("pydicom")
    from tests.learning.data.medical.made_images import dicom_image, save

    kept = keep(enrolled, IMAGES, IMAGES.shape)
    rng = np.random.default_rng(5)
    labels = {f"{n:02}": IMAGES.classes[n % 2] for n in range(20)}
    for name in labels:
        pixels = rng.integers(0, 256, size=(9, 9), dtype=np.uint8)
        save(dicom_image(pixels, PatientID=name), tmp_path / "pacs" / f"{name}.dcm")
    rows = [f"{name}.dcm,{label}" for name, label in labels.items()]
    (tmp_path / "pacs" / "labels.csv").write_text("\n".join(["file,label", *rows]))
    values = {"dataset": "medical-folder", "data-dir": str(tmp_path / "pacs"), "test-fraction": 0.4}
    partition = load_own(LocalSettings.parse(values, source="test"), "here", codebook=IMAGES)
    evaluate_model(kept, partition, device="cpu", alone=False)
    saved = kept.evaluation
    assert saved is not None

    files = [tmp_path / "pacs" / f"{name}.dcm" for name in labels]
    done = feddc("predict", "e1", *files, "--json", "--folder", enrolled.folder.path)
    assert done.exit_code == 0, done.output
    by_chance = {
        tuple(one["probabilities"].values()): labels[Path(one["input"]).stem]
        for one in json.loads(done.stdout)
    }
    held_out = SavedNetwork(kept).network.probabilities(partition.held_out.features)
    truth = np.array([IMAGES.classes.index(by_chance[tuple(row)]) for row in held_out.tolist()])
    again = evaluate_predictions(held_out, truth, IMAGES.classes)
    assert json.loads(json.dumps(again.as_dict())) == saved["study"]
    assert again.examples > 0
