"""MNIST's idx files are read as torchvision reads them, and damaged ones are named."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from learning.data import DataOptions, Dataset, load

Refusal = Callable[[Callable[[], object]], str]

NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "t10k": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def idx(values: NDArray[np.uint8]) -> bytes:
    sizes = struct.pack(f">{values.ndim}I", *values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Return a folder in which pixel (i, y, x) is 7i + 3y + x, and label i is i."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 5), ("t10k", 3)):
        image, y, x = np.indices((count, 28, 28))
        pixels = (7 * image + 3 * y + x).astype(np.uint8)
        for name, values in zip(
            NAMES[part], (pixels, np.arange(count, dtype=np.uint8)), strict=True
        ):
            (raw / f"{name}.gz").write_bytes(gzip.compress(idx(values)))
    return tmp_path


def read(folder: Path | None) -> Dataset:
    return load("mnist", folder=folder, seed=0, options=DataOptions())


def test_pixels_and_labels_arrive_where_they_belong(tiny: Path) -> None:
    mnist = read(tiny)
    assert mnist.shape == (1, 28, 28)
    assert mnist.train.labels.tolist() == [0, 1, 2, 3, 4]
    assert mnist.test.labels.tolist() == [0, 1, 2]
    byte = 7 * 4 + 3 * 20 + 11
    assert mnist.train.features[4, 0, 20, 11] == pytest.approx((byte / 255 - 0.1307) / 0.3081)


def test_unpacked_files_in_the_folder_itself_are_read_too(tiny: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for path in (tiny / "MNIST" / "raw").iterdir():
        (plain / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    assert (read(plain).train.features == read(tiny).train.features).all()


def test_real_mnist_is_what_torchvision_reads(
    real_data: Callable[[str], Path], tmp_path: Path
) -> None:
    from torchvision.datasets.mnist import read_image_file, read_label_file

    folder = real_data("mnist")
    mnist = read(folder)
    assert (len(mnist.train), len(mnist.test)) == (60_000, 10_000)
    published = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.train.labels).tolist() == published
    # Of all images: in the published order brighter and darker ones alternate, so that every
    # tenth would be no fair sample.
    assert mnist.train.features.mean() == pytest.approx(0, abs=1e-3)
    assert mnist.train.features.std() == pytest.approx(1, abs=1e-3)
    for name in NAMES["t10k"]:
        packed = folder / "MNIST" / "raw" / f"{name}.gz"
        (tmp_path / name).write_bytes(gzip.decompress(packed.read_bytes()))
    pixels = read_image_file(str(tmp_path / NAMES["t10k"][0])).numpy()
    restored = np.round(255 * (mnist.test.features[:, 0] * 0.3081 + 0.1307))
    assert (restored == pixels).all()
    labels = read_label_file(str(tmp_path / NAMES["t10k"][1])).numpy()
    assert (mnist.test.labels == labels).all()


def test_a_missing_file_is_named(tiny: Path, refusal: Refusal) -> None:
    (tiny / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz").unlink()
    message = refusal(lambda: read(tiny))
    assert "t10k-labels-idx1-ubyte: no such file, and no t10k-labels-idx1-ubyte.gz" in message


def damage(tiny: Path, name: str, content: bytes) -> Path:
    path = tiny / "MNIST" / "raw" / name
    path.write_bytes(content)
    return path


def test_damaged_files_are_named(tiny: Path, refusal: Refusal) -> None:
    name = "train-images-idx3-ubyte"
    whole = (tiny / "MNIST" / "raw" / f"{name}.gz").read_bytes()
    for content in (whole[:-20], b"not gzip", whole[:30] + b"\xff\xff\xff" + whole[33:]):
        path = damage(tiny, f"{name}.gz", content)
        assert f"{path}: not a complete gzip file; fetch it again" in refusal(lambda: read(tiny))
    plain = gzip.decompress(whole)
    for content in (b"", plain[:3], b"\x00\x00\x09" + plain[3:]):
        path = damage(tiny, name, content)
        assert f"{path}: not an idx file of bytes in 3" in refusal(lambda: read(tiny))
    for content in (plain[:-1], plain + b"\x00"):
        path = damage(tiny, name, content)
        message = refusal(lambda: read(tiny))
        assert f"{path}: cut short or too long" in message
        assert "5 × 28 × 28" in message


def test_labels_that_do_not_match_the_images_are_refused(tiny: Path, refusal: Refusal) -> None:
    damage(tiny, "train-labels-idx1-ubyte", idx(np.arange(4, dtype=np.uint8)))
    assert "train has 5 images but 4 labels" in refusal(lambda: read(tiny))
    damage(tiny, "train-labels-idx1-ubyte", idx(np.full(5, 10, dtype=np.uint8)))
    assert "labels must be 0 … 9" in refusal(lambda: read(tiny))
