"""Images in folders become arrays; patients and copies stay together; bad files are named."""

import csv
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from learning.data import DataError, DataOptions, Dataset, SplitOptions, load, split

Refusal = Callable[[Callable[[], object]], str]


def read(folder: Path, name: str = "image-folder", seed: int = 0, **options: Any) -> Dataset:
    return load(name, folder=folder, seed=seed, options=DataOptions(**options))


def save(path: Path, value: int | tuple[int, int, int], size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(value, int) else "RGB", size, value).save(path)


def shades(dataset: Dataset) -> tuple[list[int], list[int]]:
    """Return the grey values of train and test images that have one shade each."""
    train, test = (
        np.round(255 * (part.features[:, 0, 0, 0] * 0.25 + 0.5)).astype(int).tolist()
        for part in (dataset.train, dataset.test)
    )
    return train, test


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return 10 images of class a, shades 0 … 9, and 10 of class b, shades 100 … 109."""
    for number in range(10):
        suffix = [".png", ".PNG", ".bmp", ".Tiff"][number % 4]
        save(tmp_path / "a" / f"{number}{suffix}", number)
        save(tmp_path / "b" / f"{number}{suffix}", 100 + number)
    return tmp_path


def manifest(folder: Path, header: str, rows: list[str]) -> Path:
    path = folder / "manifest.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_coloured_images_are_in_the_usual_order_in_memory(tmp_path: Path) -> None:
    for number in range(10):
        save(tmp_path / "a" / f"{number}.png", (number, 50, 60))
        save(tmp_path / "b" / f"{number}.png", (100 + number, 50, 60))
    dataset = read(tmp_path, image_size=4)
    assert dataset.shape == (3, 4, 4)
    for part in (dataset.train, dataset.test):
        assert part.features.flags.c_contiguous
        np.testing.assert_allclose(255 * (part.features[:, 1] * 0.25 + 0.5), 50, atol=1e-3)


def test_images_of_any_size_and_suffix_are_read_with_their_class(folder: Path) -> None:
    dataset = read(folder, image_size=8)
    assert dataset.shape == (1, 8, 8)
    assert dataset.classes == ("a", "b")
    train, test = shades(dataset)
    assert sorted(train + test) == [*range(10), *range(100, 110)]
    assert len(test) == 4
    assert dataset.train.labels.tolist() == [int(shade >= 100) for shade in train]
    assert dataset.test.labels.tolist() == [int(shade >= 100) for shade in test]


def test_pixels_are_where_they_were(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    for name in ("a/1.png", "b/1.png"):
        (tmp_path / name).parent.mkdir()
        Image.fromarray(pixels).resize((16, 16), Image.Resampling.NEAREST).save(tmp_path / name)
    stored = np.asarray(Image.open(tmp_path / "a/1.png"))
    features = read(tmp_path, image_size=16, test_fraction=0.0).train.features[0, 0]
    assert features == pytest.approx((stored / 255 - 0.5) / 0.25, abs=1e-5)


def test_resizing_averages_what_it_leaves_out(tmp_path: Path) -> None:
    checked = np.indices((64, 64)).sum(axis=0) % 2 * 255
    for name in ("a/1.png", "b/1.png"):
        (tmp_path / name).parent.mkdir()
        Image.fromarray(checked.astype(np.uint8)).save(tmp_path / name)
    features = read(tmp_path, image_size=8, test_fraction=0.0).train.features
    assert features == pytest.approx(np.zeros((2, 1, 8, 8)), abs=0.05)


def test_a_large_jpeg_is_decoded_as_pil_would_resize_it(tmp_path: Path) -> None:
    y, x = np.indices((512, 640))
    scene = (127 + 80 * np.sin(x / 5) + 40 * np.cos(y / 4)).astype(np.uint8)
    for name in ("a/1.jpg", "b/1.JPEG"):
        (tmp_path / name).parent.mkdir()
        Image.fromarray(scene).save(tmp_path / name, "JPEG", quality=95)
    whole = Image.open(tmp_path / "a/1.jpg")
    expected = np.asarray(whole.resize((128, 128), Image.Resampling.BILINEAR), dtype=float)
    features = read(tmp_path, image_size=128, test_fraction=0.0).train.features[0, 0]
    difference = 255 * (features * 0.25 + 0.5) - expected
    assert np.abs(difference).mean() < 3


def test_mode_auto_is_rgb_as_soon_as_one_image_has_colour(folder: Path) -> None:
    assert read(folder, image_size=4).shape == (1, 4, 4)
    assert read(folder, image_size=4, image_mode="rgb").shape == (3, 4, 4)
    save(folder / "b" / "red.png", (200, 0, 0))
    dataset = read(folder, image_size=4, test_fraction=0.0)
    assert dataset.shape == (3, 4, 4)
    red = dataset.train.features[-1, :, 0, 0] * 0.25 + 0.5
    assert red * 255 == pytest.approx([200, 0, 0], abs=1e-3)
    grey = dataset.train.features[0, :, 0, 0]
    assert grey[0] == grey[1] == grey[2]
    assert read(folder, image_size=4, image_mode="grey").shape == (1, 4, 4)


def test_the_order_of_the_file_system_does_not_matter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shades(read(folder, image_size=4))
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: reversed(list(listed(path))))
    assert shades(read(folder, image_size=4)) == before
    assert shades(read(folder, image_size=4, seed=1)) != before


def test_an_image_that_changes_is_read_again(folder: Path) -> None:
    assert 7 in shades(read(folder, image_size=4, test_fraction=0.0))[0]
    save(folder / "a" / "7.Tiff", 77, size=(9, 9))
    assert 77 in shades(read(folder, image_size=4, test_fraction=0.0))[0]


def test_train_and_test_folders_are_kept_apart(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / "train" / "sick" / f"{number}.png", number)
        save(tmp_path / "train" / "well" / f"{number}.png", 50 + number)
    save(tmp_path / "test" / "well" / "0.png", 200)
    save(tmp_path / "val" / "well" / "0.png", 250)
    dataset = read(tmp_path, image_size=4)
    assert shades(dataset) == ([0, 1, 2, 50, 51, 52], [200])
    assert dataset.test.labels.tolist() == [1]


def test_a_train_folder_without_a_test_folder_is_split_by_share(tmp_path: Path) -> None:
    for number in range(5):
        save(tmp_path / "train" / "sick" / f"{number}.png", number)
        save(tmp_path / "train" / "well" / f"{number}.png", 50 + number)
    dataset = read(tmp_path, image_size=4, test_fraction=0.3)
    assert (len(dataset.train), len(dataset.test)) == (7, 3)


def test_named_classes_keep_their_labels_where_a_hospital_lacks_one(folder: Path) -> None:
    dataset = read(folder, image_size=4, classes=("c", "b"))
    assert dataset.classes == ("c", "b")
    assert set(dataset.train.labels) == {1}
    assert all(shade >= 100 for shade in shades(dataset)[0])


def test_copies_of_an_image_stay_together_without_a_manifest(folder: Path) -> None:
    for number in range(4):
        copy = folder / "a" / f"{number}.png" if number == 0 else folder / "a" / "4.png"
        (folder / "b" / f"copy{number}.png").write_bytes(copy.read_bytes())
    for seed in range(20):
        dataset = read(folder, image_size=4, seed=seed)
        train, test = shades(dataset)
        assert not set(train) & set(test)
    assert read(folder, image_size=4, group_column="none").train.groups is None


def files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.*"))]


def pairs_stay_together(dataset: Dataset) -> bool:
    train, test = ({shade // 2 for shade in part} for part in shades(dataset))
    return not train & test


@pytest.mark.parametrize("column", ["patient", "patient_token", "near_dup_group"])
def test_a_manifests_known_columns_keep_images_together(folder: Path, column: str) -> None:
    rows = [f"{file},{file[0]}{int(file[2]) // 2}" for file in files(folder)]
    manifest(folder, f"file,{column}", rows)
    assert all(pairs_stay_together(read(folder, image_size=4, seed=s)) for s in range(20))
    random = [read(folder, image_size=4, seed=s, group_column="none") for s in range(20)]
    assert not all(pairs_stay_together(dataset) for dataset in random)


def test_a_manifests_other_column_can_be_named_and_known_ones_add_up(folder: Path) -> None:
    rows = [f"{f},{f[0]}{int(f[2]) // 2},{'x' if f[2] in '12' else ''}," for f in files(folder)]
    manifest(folder, "file,ward,exact_dup_group,patient_id", rows)

    def sizes(**options: Any) -> list[int]:
        groups = read(folder, image_size=4, test_fraction=0.0, **options).train.groups
        assert groups is not None
        return sorted(np.unique(groups, return_counts=True)[1].tolist())

    assert sizes(group_column="ward") == [2] * 10
    assert sizes() == [1] * 16 + [4]
    rows = [
        f"{row}{file[0]}{int(file[2]) // 2}" for row, file in zip(rows, files_of(rows), strict=True)
    ]
    manifest(folder, "file,ward,exact_dup_group,patient_id", rows)
    # Images 1 and 2 of both classes are copies: their four patients become one group of 8.
    assert sizes() == [2] * 6 + [8]


def files_of(rows: list[str]) -> list[str]:
    return [row.split(",")[0] for row in rows]


def test_a_manifest_may_give_the_path_in_parts(tmp_path: Path) -> None:
    rows = []
    for split_name in ("train", "test"):
        for label in ("sick", "well"):
            for number in range(4):
                shade = 100 * (split_name == "test") + 50 * (label == "well") + number
                save(tmp_path / split_name / label / f"{number}.png", shade)
                # In train, patients have two images; image 0 of class sick is a test patient's.
                patient = f"{split_name}{label}{number // 2}"
                if split_name == "train" and label == "sick" and number == 0:
                    patient = "testsick0"
                rows.append(f"{split_name},{label},{number}.png,{patient}")
    manifest(tmp_path, "split,label,file,patient_token", rows)
    dataset = read(tmp_path, image_size=4)
    assert shades(dataset)[0] == [1, 2, 3, 50, 51, 52, 53]
    assert len(dataset.test) == 8
    groups = dataset.train.groups
    assert groups is not None
    assert (groups[3] == groups[4], groups[4] == groups[5]) == (True, False)


def test_training_images_left_out_for_a_test_patient_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, name in enumerate(("train/a/1", "train/a/2", "train/b/1", "test/a/1", "test/b/1")):
        save(tmp_path / f"{name}.png", number if name != "test/a/1" else 0)
    with caplog.at_level(logging.WARNING):
        dataset = read(tmp_path, image_size=4)
    assert shades(dataset)[0] == [1, 2]
    assert "1 training images left out" in caplog.text


def test_an_image_without_a_line_in_the_manifest_is_refused(folder: Path, refusal: Refusal) -> None:
    rows = [f"{file},x{number}" for number, file in enumerate(files(folder)[:-2])]
    path = manifest(folder, "file,patient", rows)
    assert f"{path}: no row for b/8.png (2 such images)" in refusal(lambda: read(folder))
    manifest(folder, "file,age", rows)
    assert len(read(folder, image_size=4).train) == 16


def test_a_manifest_without_the_columns_asked_for_is_refused(
    folder: Path, refusal: Refusal
) -> None:
    message = refusal(lambda: read(folder, group_column="ward"))
    assert "manifest.csv: no such file, but group-column 'ward' is read from it" in message
    manifest(folder, "file,age", [])
    message = refusal(lambda: read(folder, group_column="ward"))
    assert "no column 'ward'; set group-column to one of file, age, or to none" in message
    manifest(folder, "name,patient", [])
    assert "no column 'file' with each image's path" in refusal(lambda: read(folder))


def test_a_broken_image_is_named(folder: Path, refusal: Refusal) -> None:
    path = folder / "b" / "broken.png"
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, "PNG")
    for content in (b"", b"no image", buffer.getvalue()[:2000]):
        path.write_bytes(content)
        assert f"{path}: not a readable image" in refusal(lambda: read(folder))


def test_all_broken_images_are_named_at_once(folder: Path) -> None:
    broken = [folder / "a" / "one.png", folder / "b" / "two.png", folder / "b" / "three.png"]
    for path in broken:
        path.write_bytes(b"no image")

    with pytest.raises(DataError) as caught:
        read(folder)

    assert sorted(problem.split(": ")[0] for problem in caught.value.problems) == sorted(
        map(str, broken)
    )


def test_16_bit_images_are_refused_rather_than_cut_off(folder: Path, refusal: Refusal) -> None:
    path = folder / "a" / "deep.png"
    Image.fromarray(np.full((4, 4), 3000, dtype=np.uint16)).save(path)
    assert f"{path}: more than 8 bits per pixel" in refusal(lambda: read(folder))


def test_folders_without_images_or_classes_are_refused(tmp_path: Path, refusal: Refusal) -> None:
    assert "no training images of class (no class folder)" in refusal(lambda: read(tmp_path))
    save(tmp_path / "a" / "1.png", 1)
    assert "only one class, 'a'" in refusal(lambda: read(tmp_path))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "scan.dcm").touch()
    assert "no training images of class b" in refusal(lambda: read(tmp_path))
    save(tmp_path / "train" / "a" / "1.png", 1)
    save(tmp_path / "train" / "b" / "1.png", 2)
    (tmp_path / "test" / "a").mkdir(parents=True)
    assert "test: no images; fill it, or remove it" in refusal(lambda: read(tmp_path))


def test_brain_mri_has_its_own_classes_and_size(tmp_path: Path, refusal: Refusal) -> None:
    # Unpacked from Kaggle there is a second copy of everything in a third folder.
    for number in range(5):
        save(tmp_path / "no" / f"{number}.jpg", 10 * number)
        save(tmp_path / "brain_tumor_dataset" / "no" / f"{number}.jpg", 10 * number)
    message = refusal(lambda: read(tmp_path, "brain-mri"))
    assert "no training images of class yes" in message
    for number in range(5):
        save(tmp_path / "yes" / f"{number}.JPG", (100, 100, 100 + number))
    dataset = read(tmp_path, "brain-mri")
    assert dataset.shape == (1, 150, 150)
    assert dataset.classes == ("no", "yes")
    assert len(dataset.train) + len(dataset.test) == 10


def test_real_mri_scans_leak_no_near_duplicate_into_the_test_set(
    real_data: Callable[[str], Path],
) -> None:
    folder = real_data("brain_mri")
    dataset = read(folder, "brain-mri", image_size=48, test_fraction=0.21)
    assert (len(dataset.train), len(dataset.test)) == (200, 53)
    assert np.bincount(np.concatenate([dataset.train.labels, dataset.test.labels])).tolist() == [
        98,
        155,
    ]

    def near_copies(random: Dataset) -> int:
        test, train = (part.features.reshape(len(part), -1) for part in (random.test, random.train))
        correlation = np.corrcoef(test, train)[: len(test), len(test) :]
        return int((correlation > 0.995).any(axis=1).sum())

    paper = read(folder, "brain-mri", image_size=48, test_fraction=0.21, group_column="none")
    assert near_copies(paper) >= 4
    assert near_copies(dataset) <= 1
    partitions = split(
        dataset.train, SplitOptions(hospitals=25, examples=8), np.random.default_rng(0)
    )
    assert {len(partition.train) for partition in partitions} == {8}


def test_real_x_rays_of_a_patient_stay_at_one_hospital(real_data: Callable[[str], Path]) -> None:
    folder = real_data("chest_xray")
    dataset = read(folder, "chest-xray", image_size=32)
    assert dataset.classes == ("NORMAL", "PNEUMONIA")
    assert np.bincount(dataset.train.labels).tolist() == [1341, 3875]
    assert np.bincount(dataset.test.labels).tolist() == [234, 390]

    with (folder / "manifest.csv").open(newline="") as lines:
        table = [row for row in csv.DictReader(lines) if row["split"] == "train"]
    table.sort(key=lambda row: (row["label"], row["file"]))
    token_of = {
        image.tobytes(): {row["patient_token"]}
        for image, row in zip(dataset.train.features, table, strict=True)
    }
    # An image there under two patients' names is both patients'.
    for image, row in zip(dataset.train.features, table, strict=True):
        token_of[image.tobytes()].add(row["patient_token"])
    how = SplitOptions(hospitals=150, examples=8, held_out=2)
    partitions = split(dataset.train, how, np.random.default_rng(0))
    owner: dict[str, str] = {}
    for partition in partitions:
        assert (len(partition.train), len(partition.held_out)) == (8, 2)
        for kind, part in (("train", partition.train), ("held out", partition.held_out)):
            for image in part.features:
                for token in token_of[image.tobytes()]:
                    assert owner.setdefault(token, partition.name + kind) == partition.name + kind
