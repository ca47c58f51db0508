"""A user's table becomes features, labels, groups and hospitals; errors name a cell's position."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learning.data import DataError, DataOptions, Dataset, load

Refusal = Callable[[Callable[[], object]], str]


def read(path: Path, seed: int = 0, **options: Any) -> Dataset:
    return load("csv", folder=path, seed=seed, options=DataOptions(**options))


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    """Return a table in which weight is the line and age its square; patients have two lines."""
    lines = ["weight,diagnosis,age,patient_id,clinic"]
    lines += [
        f"{i},{'ill' if i % 3 else 'well'},{i * i},p{i // 2},{'nw'[i % 2]}" for i in range(20)
    ]
    return table(tmp_path, "\n".join(lines))


def whole(dataset: Dataset) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.concatenate([dataset.train.features, dataset.test.features])


def test_cells_become_features_labels_groups_and_silos(patients: Path) -> None:
    dataset = read(patients, label_column="diagnosis", hospital_column="clinic", standardise=False)
    assert dataset.classes == ("ill", "well")
    assert (len(dataset.train), len(dataset.test)) == (16, 4)
    for part in (dataset.train, dataset.test):
        assert part.groups is not None
        assert part.hospitals is not None
        # Columns in the order of their names: age, weight.
        lines = part.features[:, 1].astype(int)
        assert part.features[:, 0].tolist() == [i * i for i in lines]
        assert part.labels.tolist() == [0 if i % 3 else 1 for i in lines]
        assert part.hospitals.tolist() == ["nw"[i % 2] for i in lines]
        same_patient = lines[:, np.newaxis] // 2 == lines // 2
        assert ((part.groups[:, np.newaxis] == part.groups) == same_patient).all()
    assert sorted(whole(dataset)[:, 1]) == list(range(20))


def test_features_are_standardised_over_the_training_pool(patients: Path) -> None:
    options: dict[str, Any] = {"label_column": "diagnosis", "hospital_column": "clinic"}
    raw, dataset = read(patients, standardise=False, **options), read(patients, **options)
    mean, deviation = raw.train.features.mean(axis=0), raw.train.features.std(axis=0)
    assert dataset.test.features == pytest.approx((raw.test.features - mean) / deviation, abs=1e-4)


def test_the_order_of_columns_does_not_matter(tmp_path: Path) -> None:
    one = read(table(tmp_path, "a,b,label\n" + "1,2,x\n3,5,y\n" * 5))
    other = read(table(tmp_path, "label,b,a\n" + "x,2,1\ny,5,3\n" * 5))
    assert (whole(one) == whole(other)).all()


def test_a_patients_number_is_no_feature_even_if_patients_may_be_parted(patients: Path) -> None:
    dataset = read(
        patients, label_column="diagnosis", hospital_column="clinic", group_column="none"
    )
    assert dataset.train.groups is None
    assert dataset.shape == (2,)


def test_any_column_can_keep_lines_together(tmp_path: Path) -> None:
    path = table(tmp_path, "a,label,ward\n" + "".join(f"{i},{i % 2},{i % 5}\n" for i in range(20)))
    dataset = read(path, group_column="ward")
    assert dataset.shape == (1,)
    assert dataset.train.groups is not None
    assert np.unique(dataset.train.groups, return_counts=True)[1].tolist() == [4] * 4


def test_numeric_classes_are_in_numeric_order(tmp_path: Path) -> None:
    path = table(tmp_path, "a,label\n" + "1,10\n2,9\n3,-1\n" * 4)
    assert read(path).classes == ("-1", "9", "10")


def test_named_classes_keep_their_labels_where_a_hospital_lacks_one(tmp_path: Path) -> None:
    path = table(tmp_path, "a,label\n" + "1,ill\n2,ill\n" * 4)
    dataset = read(path, classes=("well", "ill"))
    assert dataset.classes == ("well", "ill")
    assert set(dataset.train.labels) == {1}


def test_a_hospital_may_leave_testing_to_the_coordinator(tmp_path: Path) -> None:
    dataset = read(table(tmp_path, "a,label\n1,0\n2,1\n"), test_fraction=0.0)
    assert (len(dataset.train), len(dataset.test)) == (2, 0)


def test_the_only_csv_in_a_folder_is_found_and_spreadsheets_marks_are_dropped(
    tmp_path: Path,
) -> None:
    (tmp_path / "TABLE.CSV").write_bytes(b"\xef\xbb\xbflabel,a\r\n" + b"x,1\r\ny,2\r\n\r\n" * 5)
    (tmp_path / "notes.txt").touch()
    dataset = read(tmp_path)
    assert dataset.classes == ("x", "y")
    assert len(dataset.train) == 8


def test_the_seed_decides_the_test_set(patients: Path) -> None:
    def test_set(seed: int) -> object:
        dataset = read(patients, seed, label_column="diagnosis", hospital_column="clinic")
        return dataset.test.features[:, 0].tolist()

    assert test_set(1) == test_set(1)
    assert test_set(1) != test_set(2)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, ": no examples in it"),
        ("a,label\n", {}, ": no examples in it"),
        ("label\nx\ny\n", {}, ": no columns besides label; add features"),
        (
            "a,label\n1,x\n",
            {"hospital_column": "clinic"},
            ": no column 'clinic'; set hospital-column to one of",
        ),
        (
            "a,label\n1,x\n",
            {"group_column": "ward"},
            ": no column 'ward'; set group-column to one of",
        ),
        ("a,label\n1,x\ntwo,y\n", {}, ", line 3: column 'a' is not a number"),
        ("a,label\n1,x\nnan,y\n", {}, ", line 3: column 'a' is not a number"),
        ("a,label\n1,x\n1e999,y\n", {}, ", line 3: column 'a' is not a number"),
        ("a,label\n1,x\n\n ,y\n", {}, ", line 4: column 'a' is empty"),
        ("a,label\n1,\n", {}, ", line 2: column 'label' is empty"),
        ("a,label,s\n1,x,\n2,y,n\n", {"hospital_column": "s"}, ", line 2: column 's' is empty"),
        ("a,label\n1,x\n1,y,2\n", {}, ", line 3: 3 cells where the header has 2"),
        ("a,a,label\n1,2,x\n", {}, ": column 'a' is there twice"),
        ("a,label\n1,x\n2,x\n", {}, ": only one class in column 'label'; name all"),
        (
            "a,label\n1,x\n2,z\n",
            {"classes": ("x", "y")},
            ", line 3: column 'label' is none of the classes x, y",
        ),
    ],
)
def test_a_wrong_table_is_refused_with_file_line_and_column(
    text: str, options: dict[str, Any], words: str, tmp_path: Path, refusal: Refusal
) -> None:
    path = table(tmp_path, text)
    assert f"{path}{words}" in refusal(lambda: read(path, **options))


def test_all_problems_of_a_table_are_reported_at_once(tmp_path: Path) -> None:
    lines = ["a,b,label", "1,2,x", ",2,y", "?,2,", "?,,y", "1,2,3,x"]
    lines += ["?,2,x"] * 9
    path = table(tmp_path, "\n".join(lines))

    with pytest.raises(DataError) as caught:
        read(path)

    assert caught.value.problems == (
        f"{path}, line 6: 4 cells where the header has 3; correct the line",
        f"{path}, line 3: column 'a' is empty; fill it or remove the line",
        f"{path}, line 4: column 'a' is not a number; correct it or remove the column "
        "(also in line 5, 7, 8, 9, 10 and 5 more)",
        f"{path}, line 5: column 'b' is empty; fill it or remove the line",
        f"{path}, line 4: column 'label' is empty; fill it or remove the line",
    )
    assert str(caught.value).endswith("; and 2 more")


def test_a_patients_value_is_not_in_the_message(tmp_path: Path, refusal: Refusal) -> None:
    path = table(tmp_path, "age,label\n41,x\nJane Doe,y\n")
    assert "Jane" not in refusal(lambda: read(path))


def test_files_that_are_not_one_text_are_refused(tmp_path: Path, refusal: Refusal) -> None:
    assert "0 csv files where exactly one is expected" in refusal(lambda: read(tmp_path))
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"a,label\n\x81\x8d,x\n")
    assert f"{binary}: neither UTF-8 nor Windows-1252 text" in refusal(lambda: read(binary))
    (tmp_path / "other.csv").touch()
    assert "2 csv files where exactly one is expected" in refusal(lambda: read(tmp_path))
    gone = tmp_path / "gone.csv"
    assert f"{gone}: no such folder for data set 'csv'" in refusal(lambda: read(gone))
