"""CIFAR-10 is read from its binary version or a zip of JPEGs, never from a pickle."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from learning.data import DataError, DataOptions, Dataset, load
from learning.data.sets.cifar10 import CLASSES, shrink

Refusal = Callable[[Callable[[], object]], str]

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def read(folder: Path) -> Dataset:
    return load("cifar10", folder=folder, seed=0, options=DataOptions())


def scaled(byte: int, channel: int) -> float:
    return (byte / 255 - MEAN[channel]) / DEVIATION[channel]


def write_batches(folder: Path) -> None:
    """Write records whose pixel (channel, y, x) is 60·channel + y + x + number of the file."""
    folder.mkdir()
    channel, y, x = np.indices((3, 32, 32))
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        pixels = (60 * channel + y + x + number).astype(np.uint8).tobytes()
        (folder / f"{name}.bin").write_bytes(bytes([number]) + pixels + bytes([9]) + pixels)


def jpeg(colour: tuple[int, int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), colour).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def write_zip(path: Path, **extra: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("train/ship")
        # Listed in an order that is not the alphabet's.
        archive.writestr("train/ship/2.jpg", jpeg((0, 0, 255)))
        archive.writestr("train/cat/1.jpg", jpeg((255, 0, 0)))
        archive.writestr("test/truck/1.jpg", jpeg((0, 255, 0)))
        for name, content in extra.items():
            archive.writestr(name, content)


def test_binary_records_are_read_file_by_file(tmp_path: Path) -> None:
    write_batches(tmp_path / "cifar-10-batches-bin")
    for folder in (tmp_path, tmp_path / "cifar-10-batches-bin"):
        cifar = read(folder)
        assert cifar.shape == (3, 32, 32)
        assert cifar.train.labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
        assert cifar.test.labels.tolist() == [5, 9]
        # Third file (number 2), blue, y = 30, x = 7.
        expected = scaled(60 * 2 + 30 + 7 + 2, channel=2)
        assert cifar.train.features[4, 2, 30, 7] == pytest.approx(expected, abs=1e-5)


def test_a_zip_of_jpegs_is_read_sorted_by_name(tmp_path: Path) -> None:
    write_zip(tmp_path / "images.zip")
    cifar = read(tmp_path)
    assert [CLASSES[label] for label in cifar.train.labels] == ["cat", "ship"]
    assert [CLASSES[label] for label in cifar.test.labels] == ["truck"]
    red = [scaled(255, 0), scaled(0, 1), scaled(0, 2)]
    assert cifar.train.features[0, :, 16, 16] == pytest.approx(red, abs=0.05)


@pytest.mark.slow
def test_real_zip_holds_the_images_pil_sees(real_data: Callable[[str], Path]) -> None:
    folder = real_data("cifar10")
    cifar = read(folder)
    assert np.bincount(cifar.train.labels).tolist() == [1200] * 10
    assert np.bincount(cifar.test.labels).tolist() == [1000] * 10
    (path,) = folder.glob("*.zip")
    with zipfile.ZipFile(path) as archive:
        name = sorted(n for n in archive.namelist() if n.startswith("test/dog/"))[17]
        pixels = np.asarray(Image.open(io.BytesIO(archive.read(name))), dtype=float)
    dogs = cifar.test.features[cifar.test.labels == CLASSES.index("dog")]
    restored = 255 * (np.moveaxis(dogs[17], 0, -1) * np.array(DEVIATION) + np.array(MEAN))
    assert restored == pytest.approx(pixels, abs=1e-2)


def test_only_the_pickled_version_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    message = refusal(lambda: read(tmp_path))
    assert "only the Python version, a pickle, which is never opened" in message
    assert "fetch the binary version (cifar-10-binary.tar.gz)" in message


def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path, refusal: Refusal) -> None:
    assert "neither cifar-10-batches-bin/ nor a zip" in refusal(lambda: read(tmp_path))
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    assert "is still packed; unpack it there" in refusal(lambda: read(tmp_path))
    for name in ("a.zip", "b.zip"):
        write_zip(tmp_path / name)
    assert "2 zip files" in refusal(lambda: read(tmp_path))


def test_damaged_batches_are_named(tmp_path: Path, refusal: Refusal) -> None:
    write_batches(tmp_path / "cifar-10-batches-bin")
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path}: 6145 bytes are not whole records of 3073" in refusal(lambda: read(tmp_path))
    path.unlink()
    assert f"{path}: no such file" in refusal(lambda: read(tmp_path))


def test_damaged_zips_are_named(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "images.zip"
    write_zip(path, **{"train/dog/1.jpg": b"no image"})
    assert f"{path}: train/dog/1.jpg: not a readable image" in refusal(lambda: read(tmp_path))
    path.write_bytes(b"no zip")
    assert f"{path}: not a readable zip file" in refusal(lambda: read(tmp_path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train/cat/1.jpg", jpeg((1, 2, 3)))
    assert f"{path}: no test/<class>/ images in it" in refusal(lambda: read(tmp_path))


def test_smaller_images_are_means_of_blocks_of_pixels() -> None:
    images = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    small = shrink(images, 2)
    assert small.shape == (2, 3, 2, 2)
    # (0 + 1 + 4 + 5) / 4 = 2.5 and (2 + 3 + 6 + 7) / 4 = 4.5: halves round to even.
    assert small[0, 0].tolist() == [[2, 4], [10, 12]]
    assert shrink(images, 4) is images
    with pytest.raises(DataError, match="must divide 4, got 3"):
        shrink(images, 3)
