"""Rows become features by the codebook alone; unusual cells are counted, never refused."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.data import DataError
from learning.data.tables.encode import ColumnCounts, encode, encode_labels
from learning.data.tables.local_columns import LocalColumn
from learning.data.tables.table import Cells, Table
from protocol.codebook import Codebook

CODEBOOK = Codebook.from_toml(
    """
classes = ["benign", "malignant"]
label = "finding"

[[columns]]
name = "age"
kind = "number"
range = [20, 100]
centre = 60
scale = 20
missing = ["999"]

[[columns]]
name = "stage"
kind = "category"
levels = ["1", "2", "other"]

[[columns]]
name = "smoker"
kind = "yes-no"
"""
)


def table(**columns: Sequence[str] | Cells) -> Table:
    cells: dict[str, Cells] = {
        name: values if isinstance(values, np.ndarray) else list(values)
        for name, values in columns.items()
    }
    rows = len(next(iter(cells.values())))
    return Table("t.csv", cells, np.arange(2, 2 + rows))


def test_the_mapping_is_the_one_worked_out_by_hand() -> None:
    encoded = encode(
        table(
            age=["80", "20", "150", "", "999", "k.A."],
            stage=["1", "2.0", " OTHER ", "IV", "", "unknown"],
            smoker=["yes", "Nein", "1", "0", "perhaps", "?"],
        ),
        CODEBOOK,
    )
    assert encoded.features.dtype == np.float32
    assert encoded.features.tolist() == [
        # age, missing | 1, 2, other, (other), (missing) | smoker, missing
        [1, 0, 1, 0, 0, 0, 0, 1, 0],
        [-2, 0, 0, 1, 0, 0, 0, -1, 0],
        [2, 0, 0, 0, 1, 0, 0, 1, 0],
        [0, 1, 0, 0, 0, 1, 0, -1, 0],
        [0, 1, 0, 0, 0, 0, 1, 0, 1],
        [0, 1, 0, 0, 0, 0, 1, 0, 1],
    ]
    assert encoded.counts == {
        "age": ColumnCounts(missing=3, clipped=1, median_scales=1.0),
        "stage": ColumnCounts(missing=2, unknown=1),
        "smoker": ColumnCounts(missing=1, unknown=1),
    }


def test_numbers_of_a_file_with_types_are_the_same_as_texts() -> None:
    typed = table(
        age=np.array([80.0, np.nan, 999.0]),
        stage=np.array([1.0, 2.0, np.nan]),
        smoker=np.array([1.0, 0.0, np.nan]),
    )
    texts = table(age=["80", "", "999"], stage=["1", "2", ""], smoker=["1", "0", ""])
    assert encode(typed, CODEBOOK).features.tolist() == encode(texts, CODEBOOK).features.tolist()
    assert encode(typed, CODEBOOK).counts == encode(texts, CODEBOOK).counts


def test_local_names_levels_and_units_are_mapped() -> None:
    local = {
        "age": LocalColumn.parse({"column": "Monate", "factor": 1 / 12}, source="test"),
        "stage": LocalColumn.parse({"column": "Stadium", "levels": {"I": "1"}}, source="test"),
        "finding": LocalColumn.parse({"levels": {"gutartig": "benign"}}, source="test"),
    }
    here = table(
        Monate=["960", "240"], Stadium=["I", "2"], SMOKER=["ja", "nein"],
        finding=["gutartig", "Malignant"],
    )  # fmt: skip
    plain = table(age=["80", "20"], stage=["1", "2"], smoker=["yes", "no"])
    assert encode(here, CODEBOOK, local).features == pytest.approx(encode(plain, CODEBOOK).features)
    problems: list[str] = []
    assert encode_labels(here, CODEBOOK, local, problems).tolist() == [0, 1]
    assert problems == []


def test_all_problems_are_listed_at_once_without_a_cells_content() -> None:
    bad = table(
        Alter=["80"] * 3, age_at_visit=["1"] * 3, Stage=["Miller", "2", "1"], smoker=["yes"] * 3
    )
    with pytest.raises(DataError) as caught:
        encode(bad, CODEBOOK)
    assert caught.value.problems == (
        "t.csv: no column 'age'; the nearest are 'age_at_visit', 'Stage', 'Alter'; "
        "name yours in [data.columns.age] of hospital.toml",
    )
    texts = table(age=["80", "Miller", "Smith"], stage=["1"] * 3, smoker=["yes"] * 3)
    with pytest.raises(DataError) as caught:
        encode(texts, CODEBOOK)
    (problem,) = caught.value.problems
    assert problem.startswith("t.csv, line 3, column 'age': not a number (2 cells)")

    problems: list[str] = []
    labels = table(finding=["benign", "Miller", ""])
    assert encode_labels(labels, CODEBOOK, {}, problems).tolist() == [0, -1, -1]
    assert len(problems) == 2
    assert problems[0].startswith("t.csv, line 4, column 'finding': the class is missing")
    assert "none of the classes benign, malignant (malignant not found)" in problems[1]
    assert not any("Miller" in text or "Smith" in text for text in problems)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.floats(-1e6, 1e6).map(repr), st.sampled_from(["", "999", "?"])),
            st.text(max_size=4),
            st.text(max_size=4),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_row_has_the_same_features_whatever_the_other_rows_are(
    rows: list[tuple[str, str, str]],
) -> None:
    def features(some: list[tuple[str, str, str]]) -> list[list[float]]:
        age, stage, smoker = (list(column) for column in zip(*some, strict=True))
        encoded: list[list[float]] = encode(
            table(age=age, stage=stage, smoker=smoker), CODEBOOK
        ).features.tolist()
        return encoded

    assert features(rows) == [features([row])[0] for row in rows]
