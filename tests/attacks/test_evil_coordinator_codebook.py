"""A coordinator that varies codebook and descriptor learns nothing about patients.

The codebook is pinned, so a hospital has read its data before the coordinator asks for anything.
Whatever is asked for, codes and lengths of the answers are the same for all patients.
"""

from pathlib import Path

import pytest

from learning.data import Partition
from learning.local_data import load_own
from learning.settings import LocalSettings
from protocol.codebook import Codebook
from protocol.messages import Refusal, SetUp
from tests.attacks.study import VICTIM, Study, in_process, new_study

CODEBOOK = Codebook.from_toml(
    """
classes = ["benign", "doubtful", "malignant"]
label = "finding"

[[columns]]
name = "age"
kind = "number"
range = [18, 100]
centre = 55
scale = 15

[[columns]]
name = "stage"
kind = "category"
levels = ["I", "II"]
"""
)
ROWS = 40
# The same number of rows; nothing else is alike.
PATIENTS = {
    "usual": [f"{20 + n},{('I', 'II')[n % 2]},{CODEBOOK.classes[n % 3]}" for n in range(ROWS)],
    "the lowest class only": [f"{20 + n},I,benign" for n in range(ROWS)],
    "the highest class only": [f"{20 + n},II,malignant" for n in range(ROWS)],
    "everything missing": ["k.A.,,doubtful"] * 20 + [f"{n},,benign" for n in range(20)],
    "unknown levels, out of range": [f"{10**6 + n},Q{n},benign" for n in range(ROWS)],
}


def _varied() -> list[Codebook]:
    """Codebooks that differ from the pinned one in one value each."""
    text = CODEBOOK.content.decode()
    changes = (
        ('"range":[18.0,100.0]', '"range":[18.0,56.0]'),
        ('"centre":55.0', '"centre":54.0'),
        ('"levels":["I","II"]', '"levels":["II","I"]'),
        ('"levels":["I","II"]', '"levels":["I","II","Q7"]'),
        ('["benign","doubtful","malignant"]', '["benign","doubtful"]'),
        ('"missing":[],"name":"age"', '"missing":["21"],"name":"age"'),
    )
    for before, _ in changes:
        assert before in text
    return [Codebook.from_content(text.replace(*change).encode()) for change in changes]


def _told(study: Study) -> list[tuple[str, int]]:
    """What a coordinator is told that asks for everything it can think of."""
    honest = study.descriptor(
        shape=CODEBOOK.shape, classes=len(CODEBOOK.classes), codebook=CODEBOOK.digest
    )
    descriptors = [honest.model_copy(update={"codebook": None, "experiment": "none"})]
    for number, other in enumerate(_varied()):
        asked = {"codebook": other.digest, "shape": other.shape, "classes": len(other.classes)}
        descriptors.append(honest.model_copy(update=asked | {"experiment": f"other{number}"}))
    for classes in (0, 1, 2, 4):
        changes = {"classes": classes, "experiment": f"classes{classes}"}
        descriptors.append(honest.model_copy(update=changes))
    for width in (1, 5, 7):
        changes = {"shape": (width,), "experiment": f"shape{width}"}
        descriptors.append(honest.model_copy(update=changes))
    told = []
    for descriptor in [*descriptors, honest]:
        request = SetUp(experiment=descriptor.experiment, payload=descriptor.to_bytes())
        reply = study.ask(VICTIM, request)
        code = reply.code if isinstance(reply, Refusal) else reply.kind
        told.append((str(code), len(study.passed[-1].reply)))
    return told


def _hospital(folder: Path, rows: list[str]) -> Study:
    path = folder / "patients.csv"
    path.write_text("\n".join(["age,stage,finding,patient_id", *rows_with_patients(rows)]))
    local = LocalSettings.parse({"dataset": "csv", "data-dir": str(path)}, source="test")
    study = new_study()
    own = load_own(local, VICTIM, codebook=CODEBOOK)
    assert isinstance(own, Partition)
    in_process(study, VICTIM, own, codebook=CODEBOOK.digest)
    return study


def rows_with_patients(rows: list[str]) -> list[str]:
    return [f"{row},{number}" for number, row in enumerate(rows)]


def test_what_is_refused_is_the_same_for_all_patients(tmp_path: Path) -> None:
    told = {name: _told(_hospital(tmp_path, rows)) for name, rows in PATIENTS.items()}
    usual = told["usual"]
    assert all(answers == usual for answers in told.values())
    codes = [code for code, _ in usual]
    assert codes == [
        *["another-codebook"] * 7, *["descriptor-refused"] * 7, "announcement",
    ]  # fmt: skip


@pytest.mark.parametrize("pinned", [None, CODEBOOK.digest])
def test_only_the_pinned_codebook_is_served(pinned: bytes | None, tmp_path: Path) -> None:
    study = _hospital(tmp_path, PATIENTS["usual"])
    own = load_own(
        LocalSettings.parse(
            {"dataset": "csv", "data-dir": str(tmp_path / "patients.csv")}, source="test"
        ),
        VICTIM,
        codebook=CODEBOOK,
    )
    in_process(study, VICTIM, own, codebook=pinned)
    for asked in (None, CODEBOOK.digest, bytes(32)):
        descriptor = study.descriptor(shape=CODEBOOK.shape, classes=3, codebook=asked)
        request = SetUp(experiment=descriptor.experiment, payload=descriptor.to_bytes())
        reply = study.ask(VICTIM, request)
        assert isinstance(reply, Refusal) == (asked != pinned)
