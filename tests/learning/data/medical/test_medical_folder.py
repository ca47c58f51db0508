"""A folder as a PACS exports it: what is an example, whose, and what is left out or refused."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pydicom
import pytest

from learning.data import DataError, DataOptions, Dataset, load
from learning.data.medical import decoding
from learning.data.medical.labelled_images import LabelledImages, LabelSource, read_labelled_images
from learning.data.medical.unlabelled_images import read_unlabelled_images
from learning.data.partition.held_out import HeldOut
from protocol.codebook import Images
from tests.learning.data.medical.made_images import (
    ct_slice,
    dicom_image,
    hounsfield,
    save,
    save_series,
)

Refusal = Callable[[Callable[[], object]], str]
SLICE = Images(view="slice", size=(4, 4))
VOLUME = Images(view="volume", size=(4, 8, 8), intensity="hu-window", window=(-1000, 1000))


def grey(value: int) -> np.ndarray[Any, Any]:
    return np.full((4, 4), value, np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return six patients with two images each, a table of labels, and what else lies around."""
    root = tmp_path / "Röntgen"
    rows = ["Accession Number;label"]
    for number in range(12):
        made = dicom_image(
            grey(20 * number),
            PatientID=f"P{number // 2}",
            AccessionNumber=f"A{number:04}",
        )
        save(made, root / f"Müller {number // 2}" / f"{number:08}")
        rows.append(f"A{number:04};{'ill' if number % 4 < 2 else 'well'}")
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    (root / "README.txt").write_text("exported by a PACS")
    return root


def read(root: Path, form: Images = SLICE, **options: Any) -> LabelledImages:
    given = {
        name: options.pop(name) for name in ("classes", "unreadable", "cache") if name in options
    }
    return read_labelled_images(root, form, LabelSource(**options), **given)


def shades(found: LabelledImages) -> dict[int, str]:
    values = np.round((found.examples.features[:, 0, 0, 0] * 0.25 + 0.5) * 255).astype(int)
    names = [found.classes[label] for label in found.examples.labels]
    return dict(zip(values.tolist(), names, strict=True))


EXPECTED = {20 * number: "ill" if number % 4 < 2 else "well" for number in range(12)}


def test_images_without_suffix_get_their_labels_by_accession_number(folder: Path) -> None:
    found = read(folder)
    assert shades(found) == EXPECTED
    assert found.classes == ("ill", "well")
    assert (found.survey.images, found.survey.patients, found.survey.others) == (12, 6, 2)
    groups = found.examples.groups
    assert groups is not None
    assert len(set(groups.tolist())) == 6
    assert found.identities == [f"patient P{n // 2}" for n in range(12)]


@pytest.mark.parametrize("key", ["file", "series", "accession", "study", "patient"])
@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_labels_are_found_by_every_key(folder: Path, key: str, suffix: str) -> None:
    names = {
        "file": "Filename",
        "series": "SeriesInstanceUID",
        "accession": "accession_number",
        "study": "Study UID",
        "patient": "PatientID",
    }
    (folder / "labels.csv").unlink()
    rows = [[names[key], "label"]]
    for path in sorted(folder.rglob("0*")):
        header = pydicom.dcmread(path)
        number = int(path.name)
        value = {
            "file": path.relative_to(folder).as_posix().replace("/", "\\"),
            "series": str(header.SeriesInstanceUID),
            "accession": str(header.AccessionNumber),
            "study": str(header.StudyInstanceUID),
            "patient": str(header.PatientID),
        }[key]
        rows.append([value, EXPECTED[20 * number]])
    if suffix == ".csv":
        (folder / "labels.csv").write_text("\n".join(map(",".join, rows)))
    else:
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(folder / "labels.xlsx")
    assert shades(read(folder)) == EXPECTED


def test_a_column_of_any_name_can_be_the_key(folder: Path, refusal: Refusal) -> None:
    table = folder / "labels.csv"
    table.write_text(table.read_text().replace("Accession Number", "Untersuchung"))
    assert "name one of Untersuchung, label with key-column" in refusal(lambda: read(folder))
    assert shades(read(folder, key="accession", key_column="untersuchung")) == EXPECTED


def test_numbers_that_lost_their_zeros_in_a_spreadsheet_still_match(folder: Path) -> None:
    for path in sorted(folder.rglob("0*")):
        header = pydicom.dcmread(path)
        header.AccessionNumber = header.AccessionNumber.replace("A", "0")
        save(header, path)
    table = folder / "labels.csv"
    rows = [f"{n};{EXPECTED[20 * n]}" for n in range(1, 12)]
    table.write_text("\n".join(["accession;label", f"0;{EXPECTED[0]}", *rows]))
    found = shades(read(folder, leave_out=True))
    assert found == {shade: name for shade, name in EXPECTED.items() if shade in found}
    assert len(found) >= 11


def test_folders_of_classes_need_no_table(tmp_path: Path, refusal: Refusal) -> None:
    for name, value in (("ill", 20), ("well", 40)):
        save(dicom_image(grey(value)), tmp_path / name / "case" / "1.dcm")
    assert shades(read(tmp_path)) == {20: "ill", 40: "well"}
    save(dicom_image(grey(1)), tmp_path / "loose")
    assert "loose is in none" in refusal(lambda: read(tmp_path))


def test_images_without_a_label_or_with_two_are_listed_and_can_be_left_out(folder: Path) -> None:
    table = folder / "labels.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:-1], "A0000;well"]))
    with pytest.raises(DataError) as caught:
        read(folder)
    without, two = caught.value.problems
    assert "1 images without a label (by accession): Müller 5/00000011" in without
    assert "1 images with two labels (by accession): Müller 0/00000000" in two
    assert 'or set unlabelled = "leave-out"' in without
    found = read(folder, leave_out=True)
    assert found.survey.unlabelled == 2
    assert shades(found) == {s: n for s, n in EXPECTED.items() if s not in (0, 220)}


def test_series_with_two_labels_are_listed_with_their_files(tmp_path: Path) -> None:
    for number in range(3):
        save_series(tmp_path / f"s{number}", hounsfield(), PatientID=f"P{number}")
    (tmp_path / "labels.csv").write_text("patient,label\nP0,a\nP1,b\nP1,a\n")
    with pytest.raises(DataError) as caught:
        read(tmp_path, VOLUME)
    without, two = caught.value.problems
    assert "(5 files, s2/IM0000 …)" in without
    assert "(5 files, s1/IM0000 …)" in two


def test_the_codebook_s_classes_are_kept_and_own_words_mapped(
    folder: Path, refusal: Refusal
) -> None:
    classes = ("healthy", "other", "ill")
    message = refusal(lambda: read(folder, classes=classes))
    assert "6 labels are none of the classes healthy, other, ill (healthy, other not" in message
    assert "map your own words with levels" in message
    found = read(folder, classes=classes, levels={"Well": "healthy"})
    assert set(shades(found).values()) == {"healthy", "ill"}
    assert found.classes == classes


def test_localizers_and_copies_are_left_out_and_counted(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        save_series(tmp_path / name, hounsfield(seed=number))
    scout = ct_slice(hounsfield((1, 8, 8)), 0, ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    save(scout, tmp_path / "a" / "scout")
    copy = tmp_path / "a" / "IM0001"
    (tmp_path / "b" / "copy").write_bytes(copy.read_bytes())
    found = read(tmp_path, VOLUME)
    assert found.examples.features.shape == (2, 1, 4, 8, 8)
    assert (found.survey.localizers, found.survey.copies) == (1, 1)


def damage(folder: Path) -> list[str]:
    whole = (folder / "Müller 1" / "00000002").read_bytes()
    (folder / "Müller 1" / "00000002").write_bytes(whole[: len(whole) - 5])
    (folder / "Müller 1" / "00000003").write_bytes(whole[:200])
    (folder / "notes.dcm").write_text("no image")
    return ["Müller 1/00000002", "Müller 1/00000003", "notes.dcm"]


def test_damaged_files_are_named_and_left_out_up_to_the_limit(folder: Path) -> None:
    names = damage(folder)
    with pytest.raises(DataError) as caught:
        read(folder)
    *files, last = caught.value.problems
    assert sorted(problem.split(": ")[0] for problem in files) == [str(folder / n) for n in names]
    assert "3 files can't be read, 0 may be left out" in last
    with pytest.raises(DataError) as caught:
        read(folder, unreadable=2)
    assert "3 files can't be read, 2 may be left out" in caught.value.problems[-1]
    found = read(folder, unreadable=3)
    assert sorted(found.survey.unreadable) == sorted(names)
    assert shades(found) == {s: n for s, n in EXPECTED.items() if s not in (40, 60)}


def test_problems_of_every_kind_are_in_one_list(tmp_path: Path) -> None:
    for number in range(6):
        save_series(tmp_path / f"s{number}", hounsfield(), PatientID=f"P{number}")
    (tmp_path / "s1" / "IM0002").unlink()  # a missing slice
    last = tmp_path / "s3" / "IM0001"
    last.write_bytes(last.read_bytes()[:-7])  # its header can be read
    (tmp_path / "torn.dcm").write_bytes(b"no image")
    # No label for P0, two for P4, and for P5 one that is no class.
    rows = ("P1,ill", "P2,ill", "P3,well", "P4,well", "P4,ill", "P5,Jane Doe")
    (tmp_path / "labels.csv").write_text("\n".join(["patient,label", *rows]))

    with pytest.raises(DataError) as caught:
        read(tmp_path, VOLUME, classes=("well", "ill"))

    problems = caught.value.problems
    assert not any("Jane" in problem for problem in problems)
    for said, place in (
        ("1 images without a label (by patient)", "s0/IM0000"),
        ("1 images with two labels (by patient)", "s4/IM0000"),
        ("1 labels are none of the classes well, ill", "levels"),
        ("1 slices missing, the first after s1/IM0001", "export the whole series again"),
        ("truncated", "s3/IM0001"),
        ("truncated or no image", "torn.dcm"),
    ):
        assert any(said in problem and place in problem for problem in problems), (said, problems)
    assert "files can't be read, 0 may be left out" in problems[-1]


def test_files_are_never_followed_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    outside = save(dicom_image(grey(99)), tmp_path / "outside" / "1.dcm")
    (folder / "link.dcm").symlink_to(outside)
    (folder / "linked").symlink_to(outside.parent)
    (folder / "inside").symlink_to(folder / "Müller 0" / "00000000")
    os.mkfifo(folder / "pipe.dcm")
    (folder / "zero").symlink_to("/dev/zero")
    with pytest.raises(DataError) as caught:
        read(folder)
    *problems, _ = caught.value.problems
    assert sorted(problem.removeprefix(f"{folder}/") for problem in problems) == [
        "link.dcm: a link out of the data folder; put a copy in its place",
        "linked: a link out of the data folder; put a copy in its place",
        "pipe.dcm: a pipe instead of a file; remove it from the data",
        "zero: a link out of the data folder; put a copy in its place",
    ]
    found = read(folder, unreadable=4)
    assert shades(found) == EXPECTED
    assert found.survey.copies == 1


def test_a_folder_without_images_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert "no DICOM or NIfTI images in it" in refusal(lambda: read(tmp_path))


# --- the cache ------------------------------------------------------------------------------------


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of items as they are decoded."""
    names: list[str] = []
    real = decoding.decode_item

    def decode(item: Any, form: Images) -> Any:
        names.append(item.name)
        return real(item, form)

    monkeypatch.setattr(decoding, "decode_item", decode)
    return names


def entries(cache: Path) -> list[Path]:
    return sorted(p for p in cache.rglob("*") if p.is_file() and p.name != "index.json")


def test_a_second_read_decodes_nothing_and_gives_the_same(
    folder: Path, tmp_path: Path, decoded: list[str]
) -> None:
    cache = tmp_path / "state" / "cache"
    first = read(folder, cache=cache)
    assert len(decoded) == 12
    again = read(folder, cache=cache)
    assert len(decoded) == 12
    np.testing.assert_array_equal(first.examples.features, again.examples.features)
    for path in cache.rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted


def test_damaged_changed_and_removed_files_are_noticed(
    folder: Path, tmp_path: Path, decoded: list[str]
) -> None:
    cache = tmp_path / "cache"
    first = read(folder, cache=cache)
    whole = entries(cache)[0].read_bytes()
    for broken in (b"", whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        entries(cache)[0].write_bytes(broken)
        del decoded[:]
        again = read(folder, cache=cache)
        assert len(decoded) == 1  # rebuilt
        np.testing.assert_array_equal(first.examples.features, again.examples.features)
    save(dicom_image(grey(7), AccessionNumber="A0000"), folder / "Müller 0" / "00000000")
    del decoded[:]
    assert 7 in shades(read(folder, cache=cache))
    assert decoded == ["Müller 0/00000000"]
    assert len(entries(cache)) == 12
    (folder / "Müller 0" / "00000000").unlink()
    read(folder, cache=cache)
    assert len(entries(cache)) == 11  # no copy is left of an image that was taken away


def test_another_codebook_has_other_entries(
    folder: Path, tmp_path: Path, decoded: list[str]
) -> None:
    read(folder, cache=tmp_path / "cache")
    larger = Images(view="slice", size=(5, 4))
    assert read(folder, larger, cache=tmp_path / "cache").examples.features.shape[2:] == (5, 4)
    assert len(decoded) == 24


def test_without_space_on_the_disk_images_are_read_and_not_cached(
    folder: Path, tmp_path: Path, decoded: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert shades(read(folder, cache=tmp_path / "cache")) == EXPECTED
    assert "images are not cached" in caplog.text


# --- as a data set --------------------------------------------------------------------------------


def dataset(root: Path, **options: Any) -> Dataset:
    return load("medical-folder", folder=root, seed=0, options=DataOptions(**options))


def test_a_patient_is_never_in_train_and_test(folder: Path) -> None:
    for seed in range(10):
        found = load("medical-folder", folder=folder, seed=seed, options=DataOptions(image_size=4))
        assert found.train.groups is not None
        assert found.test.groups is not None
        assert not set(found.train.groups.tolist()) & set(found.test.groups.tolist())
    assert dataset(folder).shape == (1, 128, 128)
    assert dataset(folder, image_mode="rgb", image_size=8).shape == (3, 8, 8)


def test_a_patient_in_train_and_test_is_left_out_of_train_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patients = {"train/ill": "ABC", "train/well": "DEF", "test/ill": "CX", "test/well": "Y"}
    for name, numbers in patients.items():
        for place, number in enumerate(numbers):
            made = dicom_image(grey(20 * place), PatientID=number)
            save(made, tmp_path / name / f"{place}")
    save(dicom_image(grey(250)), tmp_path / "val" / "ill" / "0")
    found = dataset(tmp_path, image_size=4)
    assert found.classes == ("ill", "well")
    assert (len(found.train), len(found.test)) == (5, 3)
    assert found.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert "1 images of train/ left out: their patient or a copy is in test/" in caplog.text


def test_added_patients_move_nobody_out_of_the_held_out_set(folder: Path) -> None:
    held_out = HeldOut(bytes(32))
    before = dataset(folder, image_size=4, test_fraction=0.4, held_out=held_out)
    for number in range(12, 30):
        made = dicom_image(
            grey(5 * number), PatientID=f"P{number}", AccessionNumber=f"A{number:04}"
        )
        save(made, folder / f"{number:08}")
        with (folder / "labels.csv").open("a") as file:
            file.write(f"A{number:04};ill\n")
    after = dataset(folder, image_size=4, test_fraction=0.4, held_out=HeldOut(bytes(32)))
    old = {row.tobytes() for row in before.test.features}
    assert old
    assert old <= {row.tobytes() for row in after.test.features}


# --- without labels -------------------------------------------------------------------------------


def test_images_to_predict_have_the_features_of_training(folder: Path, refusal: Refusal) -> None:
    trained = read(folder)
    names, features = read_unlabelled_images([folder], SLICE)
    assert names == tuple(map(str, sorted(folder.rglob("0*"))))
    np.testing.assert_array_equal(features, trained.examples.features)
    one = folder / "Müller 1" / "00000003"
    names, features = read_unlabelled_images([one], SLICE)
    assert names == (str(one),)
    np.testing.assert_array_equal(features[0], trained.examples.features[3])
    message = refusal(lambda: read_unlabelled_images([folder / "labels.csv", one], SLICE))
    assert "labels.csv: no DICOM or NIfTI image" in message
