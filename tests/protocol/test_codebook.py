"""A codebook has one form and one digest; whatever is not one is refused with all its problems."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.codebook import Codebook, CodebookError, Images
from protocol.sealing.keys import Identity
from tests.fuzz import fuzz
from tests.protocol.mutations import Sample, mutated, refuses

COORDINATOR = Identity.generate()
TABLE = """
title = "Prüfstudie"
classes = ["benign", "malignant"]
label = "finding"

[[columns]]
name = "age"
kind = "number"
unit = "years"
range = [18, 100]
centre = 55
scale = 10
missing = ["999"]

[[columns]]
name = "Größe"
kind = "category"
levels = ["small", "large"]

[[columns]]
name = "smoker"
kind = "yes-no"
"""
IMAGES = """
classes = ["no", "yes"]

[images]
view = "volume"
size = [32, 64, 64]
intensity = "hu-window"
window = [-1000, 400]
spacing = [2.5, 1, 1]
"""


def test_a_table_has_its_features_in_the_order_of_the_columns() -> None:
    codebook = Codebook.from_toml(TABLE)
    assert codebook.features == (
        "age", "age: (missing)",
        "Größe: small", "Größe: large", "Größe: (other)", "Größe: (missing)",
        "smoker", "smoker: (missing)",
    )  # fmt: skip
    assert codebook.shape == (8,)
    assert Codebook.from_toml(IMAGES).shape == (1, 32, 64, 64)


def test_layout_and_comments_do_not_change_the_digest_but_every_value_does() -> None:
    codebook = Codebook.from_toml(TABLE)
    other_layout = "# agreed in May\n" + TABLE.replace("centre = 55", "centre =   55.0 # years")
    assert Codebook.from_toml(other_layout).digest == codebook.digest
    for before, after in (
        ("malignant", "cancer"),
        ("55", "56"),
        ('"small", "large"', '"large", "small"'),
        ("999", "-1"),
        ("years", "months"),
        ("finding", "result"),
        ("18", "17"),
        ('"yes-no"', '"yes-no"\nmissing = ["9"]'),
    ):
        assert Codebook.from_toml(TABLE.replace(before, after)).digest != codebook.digest


@pytest.mark.parametrize("text", [TABLE, IMAGES])
def test_the_signed_form_returns_the_same_codebook(text: str) -> None:
    codebook = Codebook.from_toml(text)
    again = Codebook.from_signed(codebook.signed(COORDINATOR), COORDINATOR.public)
    assert again == codebook
    assert again.digest == codebook.digest


def test_a_codebook_that_was_edited_or_signed_by_another_is_refused() -> None:
    signed = Codebook.from_toml(TABLE).signed(COORDINATOR)
    edited = signed.replace(b'"centre":55.0', b'"centre":65.0')
    assert edited != signed
    for data, signer in ((edited, COORDINATOR), (signed, Identity.generate())):
        with pytest.raises(CodebookError, match="not signed by the study's coordinator"):
            Codebook.from_signed(data, signer.public)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("classes =", "claszes =", "classes: Field required; claszes: Extra inputs"),
        ('["benign", "malignant"]', '["benign"]', "at least 2 items"),
        ('["benign", "malignant"]', '["benign", "Benign"]', "two classes differ only in capitals"),
        ('["benign", "malignant"]', '["1", "1.0"]', "two classes"),
        ("scale = 10", "scale = 0", "scale: Input should be greater than"),
        ("scale = 10", "scale = nan", "scale"),
        ("scale = 10", 'scale = "10"', "scale: Input should be a valid number"),
        ("scale = 10", "scale = true", "scale: Input should be a valid number"),
        ("scale = 10", "scale = 0.0001", "more than 10000 times the scale"),
        ("[18, 100]", '["18", "100"]', "range.0: Input should be a valid number"),
        ("[18, 100]", "[100, 18]", "range must rise"),
        ("[18, 100]", "[60, 100]", "centre must be in the range"),
        ("[18, 100]", "[-inf, inf]", "range.0"),
        ('"small", "large"', '"small", "SMALL"', "two levels differ"),
        ('"yes-no"', '"date"', "columns.2"),
        ('"smoker"', '"AGE"', "two columns differ only in capitals"),
        ('"smoker"', '"finding"', "two columns"),
        ('"smoker"', r'"smo\u001bker"', "printable"),
        ('"smoker"', '" smoker"', "without spaces around"),
        ('"years"', r'"years\u202e"', "printable"),
        ("[[columns]]", "[[columns", "not TOML"),
    ],
)
def test_what_is_no_codebook_is_refused_with_its_place(before: str, after: str, says: str) -> None:
    assert before in TABLE
    with pytest.raises(CodebookError) as caught:
        Codebook.from_toml(TABLE.replace(before, after))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value) or "TOML" in says


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"view": "slice"}, "size of a slice has 2 numbers, got 3"),
        ({"size": [32, 64]}, "size of a volume has 3 numbers, got 2"),
        ({"spacing": [1.0]}, "spacing of a volume has 3 numbers"),
        ({"window": None}, "window is given exactly if"),
        ({"intensity": "8-bit"}, "window is given exactly if"),
        ({"window": [400, -1000]}, "window must rise"),
        ({"intensity": "percentiles", "window": None, "percentiles": [1, 101]}, "0 and 100"),
        ({"channels": 3}, "3 channels are for 8-bit slices"),
        ({"channels": 2}, "Input should be 1 or 3"),
        ({"size": [4096, 4096, 4096]}, "more than 64000000"),
    ],
)
def test_impossible_images_are_refused(change: dict[str, Any], says: str) -> None:
    images = Codebook.from_toml(IMAGES).images
    assert images is not None
    with pytest.raises(ValueError, match=re.escape(says)):
        Images.model_validate(images.model_dump() | change)


def test_a_codebook_is_of_rows_or_of_images() -> None:
    with pytest.raises(CodebookError, match="not both"):
        Codebook.from_toml(TABLE + "\n[images]\nview = 'slice'\nsize = [8, 8]\n")
    with pytest.raises(CodebookError, match="not both"):
        Codebook.from_toml('classes = ["a", "b"]')


def _sample(text: str) -> Sample:
    data = Codebook.from_toml(text).signed(COORDINATOR)
    ends = {match.end() for match in re.finditer(rb'[":,}\]]+', data[:-64])}
    return Sample(data, (*sorted(ends), len(data) - 32, len(data)))


@fuzz
@given(mutated([_sample(TABLE), _sample(TABLE.replace("malignant", "cancer"))]))
def test_mutated_codebooks_are_refused(data: bytes) -> None:
    refuses(lambda: Codebook.from_signed(data, COORDINATOR.public), CodebookError)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@fuzz
@given(st.data())
def test_odd_values_are_refused_or_have_one_form(data: st.DataObject) -> None:
    """Even what the coordinator signed is parsed as hostile input."""
    form: dict[str, Any] = json.loads(
        Codebook.from_toml(data.draw(st.sampled_from([TABLE, IMAGES]))).content
    )
    target = data.draw(st.sampled_from([form, *form["columns"], *filter(None, [form["images"]])]))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(_values)
    content = json.dumps(form, sort_keys=True, separators=(",", ":")).encode()
    try:
        codebook = Codebook.from_content(content)
    except CodebookError:
        return
    assert codebook.content == content
