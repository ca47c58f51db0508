"""The four hospitals' files become one data set with hospitals; missing values are filled in."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from learning.data import DataOptions, Dataset, Examples, SplitOptions, load, split

Refusal = Callable[[Callable[[], object]], str]

COLUMNS = (
    "chol missing", "age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak",
    "cp 1", "cp 2", "cp 3", "cp 4", "restecg 0", "restecg 1", "restecg 2",
)  # fmt: skip


def read(folder: Path, seed: int = 0, **options: object) -> Dataset:
    return load("heart-disease", folder=folder, seed=seed, options=DataOptions(**options))  # type: ignore[arg-type]


def line(age: int, *, cp: str = "1", bp: str = "120", chol: str = "200", num: str = "0") -> str:
    return f"{age},1,{cp},{bp},{chol},0,0,150,0,1.5,?,?,?,{num}\n"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    files = {
        "cleveland": line(40) + line(50, cp="4.0", num="3"),
        "hungarian": line(41, chol="?") + line(51, cp="2", num="1") + line(51, cp="2", num="1"),
        "switzerland": line(42, chol="0") + line(52, cp="3", chol="300", num="4"),
        "va": line(43, bp="0", chol="260") + line(53, num="2") + "\n",
    }
    for hospital, text in files.items():
        (tmp_path / f"processed.{hospital}.data").write_text(text)
    return tmp_path


def test_a_hand_worked_table_is_read(tiny: Path) -> None:
    heart = read(tiny, test_fraction=0.0).train
    assert heart.hospitals is not None
    assert heart.hospitals.tolist() == [
        *["cleveland"] * 2, *["hungarian"] * 3, *["switzerland"] * 2, *["va"] * 2,
    ]  # fmt: skip
    assert heart.labels.tolist() == [0, 1, 0, 1, 1, 0, 1, 0, 1]
    raw = {
        "age": [40, 50, 41, 51, 51, 42, 52, 43, 53],
        "chol missing": [0, 0, 1, 0, 0, 1, 0, 0, 0],
        # Known: 200, 200, 200, 200, 300, 260, 200; the median is 200.
        "chol": [200, 200, 200, 200, 200, 200, 300, 260, 200],
        "trestbps": [120] * 9,
        "cp 1": [1, 0, 1, 0, 0, 1, 0, 1, 1],
        "cp 4": [0, 1, 0, 0, 0, 0, 0, 0, 0],
        "restecg 0": [1] * 9,
    }
    assert heart.features.shape == (9, len(COLUMNS))
    for name, values in raw.items():
        column = np.array(values, dtype=float)
        expected = (column - column.mean()) / (column.std() or 1)
        assert heart.features[:, COLUMNS.index(name)] == pytest.approx(expected, abs=1e-6), name


def test_equal_lines_of_a_hospital_stay_together(tiny: Path) -> None:
    groups = read(tiny, test_fraction=0.0).train.groups
    assert groups is not None
    assert len(set(groups.tolist())) == 8
    assert groups[3] == groups[4]
    assert read(tiny, group_column="none").train.groups is None


def imputed_with_the_median(part: Examples) -> bool:
    """Tell whether the missing values are the median of those known; scaling changes neither."""
    missing = part.features[:, COLUMNS.index("chol missing")] > 0
    chol = part.features[:, COLUMNS.index("chol")]
    return bool(np.allclose(chol[missing], np.median(chol[~missing]), atol=1e-5))


@pytest.mark.parametrize("seed", range(5))
def test_missing_values_become_the_training_pools_median(tiny: Path, seed: int) -> None:
    amounts = [line(40 + i, chol=str(100 + i * i)) for i in range(30)]
    missing = [line(80 + i, chol="?") for i in range(20)]
    (tiny / "processed.va.data").write_text("".join(amounts + missing))
    heart = read(tiny, seed, test_fraction=0.4)
    assert imputed_with_the_median(heart.train)
    assert not imputed_with_the_median(heart.test)


def test_real_cholesterol_is_read_as_the_files_have_it(real_data: Callable[[str], Path]) -> None:
    folder = real_data("heart_disease")
    records = [
        cells.split(",")
        for hospital in ("cleveland", "hungarian", "switzerland", "va")
        for cells in (folder / f"processed.{hospital}.data").read_text().split()
    ]
    heart = read(folder, test_fraction=0.0).train
    chol = np.array([np.nan if cells[4] in ("?", "0") else float(cells[4]) for cells in records])
    missing = np.isnan(chol)
    assert (len(heart), missing.sum()) == (920, 202)
    imputed = np.where(missing, np.nanmedian(chol), chol)
    expected = (imputed - imputed.mean()) / imputed.std()
    assert heart.features[:, COLUMNS.index("chol")] == pytest.approx(expected, abs=1e-5)


def test_real_hospitals_have_their_published_sizes_and_rates(
    real_data: Callable[[str], Path],
) -> None:
    heart = read(real_data("heart_disease"), test_fraction=0.0).train
    partitions = split(heart, SplitOptions(kind="natural"), np.random.default_rng(0))
    found = {
        partition.name: (len(partition.train), partition.train.labels.mean())
        for partition in partitions
    }
    assert found == {
        "cleveland": (303, pytest.approx(0.459, abs=5e-4)),
        "hungarian": (294, pytest.approx(0.361, abs=5e-4)),
        "switzerland": (123, pytest.approx(0.935, abs=5e-4)),
        "va": (200, pytest.approx(0.745, abs=5e-4)),
    }


def test_real_features_predict_the_disease(real_data: Callable[[str], Path]) -> None:
    heart = read(real_data("heart_disease"), test_fraction=0.0).train
    order = np.random.default_rng(0).permutation(len(heart))
    model = LogisticRegression(max_iter=1000)
    scores = cross_val_score(model, heart.features[order], heart.labels[order], cv=5)
    # With all 13 attributes, also those that give the hospital away, it is .814.
    assert scores.mean() > 0.79


def test_natural_shares_hold_out_the_number_asked_for(real_data: Callable[[str], Path]) -> None:
    heart = read(real_data("heart_disease"))
    how = SplitOptions(kind="natural", hospitals=4, held_out=20)
    partitions = split(heart.train, how, np.random.default_rng(0))
    assert [len(partition.held_out) for partition in partitions] == [20] * 4
    total = sum(len(partition.train) for partition in partitions) + 80
    # A copied line may be left out, see the two duplicates.
    assert len(heart.train) - 2 <= total <= len(heart.train)
    assert len(heart.train) + len(heart.test) == 920


def test_a_missing_file_is_named(tiny: Path, refusal: Refusal) -> None:
    path = tiny / "processed.va.data"
    path.unlink()
    assert f"{path}: no such file" in refusal(lambda: read(tiny))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ": empty; fetch it again from the UCI repository, Heart Disease"),
        (line(1) + "1,2,3\n", ", line 2: 3 values where 14 are expected"),
        (line(1) + line(2, chol="high"), ", line 2: column 'chol' is not a value it can have"),
        (line(1, chol="nan"), ", line 1: column 'chol' is not"),
        (line(1, cp="5"), ", line 1: column 'cp' is not"),
        (line(1, cp="?"), ", line 1: column 'cp' is not"),
        (line(1, num="?"), ", line 1: column 'num' is not"),
        (
            "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num\n",
            ", line 1: column 'age' is not a value it can have; expected UCI's processed file, "
            "which has no header",
        ),
    ],
)
def test_damaged_files_are_refused_with_line_and_column(
    text: str, words: str, tiny: Path, refusal: Refusal
) -> None:
    path = tiny / "processed.hungarian.data"
    path.write_text(text)
    assert f"{path}{words}" in refusal(lambda: read(tiny))
