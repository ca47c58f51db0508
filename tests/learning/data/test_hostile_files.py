"""Files that are no data: each is refused by name, with what to do, and reading it ends.

Before, a csv of 30,000 columns was not read within 40 s, a pipe or a link to /dev/zero named as an
image was read forever, and a png of 2 MB took 1.3 GB.
"""

import gzip
import os
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from learning.data import DataError, DataOptions, Dataset, load
from learning.data.sets import cifar10, csv_file, mnist
from learning.data.sources import read_bytes

Refusal = Callable[[Callable[[], object]], str]


def read_csv(path: Path) -> Dataset:
    return load("csv", folder=path, seed=0, options=DataOptions())


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no space on the disk


KINDS = {
    pipe: "a pipe instead of a file; remove it",
    device: "a device instead of a file; remove it",
    listener: "a socket instead of a file; remove it",
    loop: "a link that leads back to itself; remove it",
    folder: "a folder instead of a file; remove it",
    dangling: "no such file",
    huge: "1099511627776 bytes, more than the",
}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_no_file_is_refused_as_a_table(
    make: Callable[[Path], None], tmp_path: Path, refusal: Refusal
) -> None:
    make(tmp_path / "a.csv")
    assert f"{tmp_path / 'a.csv'}: {KINDS[make]}" in refusal(lambda: read_csv(tmp_path))


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_no_file_is_refused_as_an_image(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    for name in ("ill", "well"):
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / name / "fine.png")
    for number in range(2):
        make(tmp_path / "ill" / f"{number}.png")

    with pytest.raises(DataError) as refused:
        load("image-folder", folder=tmp_path, seed=0, options=DataOptions())

    assert len(refused.value.problems) == 2  # all of them at once
    for number, problem in enumerate(refused.value.problems):
        assert problem.startswith(f"{tmp_path / 'ill' / f'{number}.png'}: {KINDS[make]}")


def test_a_link_to_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"content"


# --- tables ---------------------------------------------------------------------------------------


def test_a_table_of_genes_is_read(tmp_path: Path) -> None:
    genes, patients = 30_000, 12
    rows = [",".join(["label", *(f"g{n}" for n in range(genes))])]
    rows += [
        ",".join(["xy"[p % 2], *(str((p * n) % 97) for n in range(genes))]) for p in range(patients)
    ]
    (tmp_path / "genes.csv").write_text("\n".join(rows))

    found = load("csv", folder=tmp_path, seed=0, options=DataOptions(standardise=False))

    assert found.train.features.shape[1] == genes
    order = sorted(range(genes), key=lambda n: f"g{n}")
    whole = np.concatenate([found.train.features, found.test.features])
    expected = {tuple((p * n) % 97 for n in order) for p in range(patients)}
    assert {tuple(row.astype(int)) for row in whole} == expected


def test_a_wide_table_s_problems_fit_on_a_screen(tmp_path: Path, refusal: Refusal) -> None:
    header = ",".join(["label", *(f"g{n}" for n in range(5000))])
    path = tmp_path / "genes.csv"
    path.write_text("\n".join([header, ",".join(["x", *["?"] * 5000])]))
    assert len(refusal(lambda: read_csv(path))) < 2_000
    path.write_text(header.replace("label", "other") + "\n")
    message = refusal(lambda: read_csv(path))
    assert message.endswith("and 4981 more")
    assert len(message) < 2_000


def test_more_columns_than_any_study_has_are_refused(
    tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "_MOST_COLUMNS", 3)
    (tmp_path / "a.csv").write_text("a,b,c,label\n1,2,3,x\n")
    assert "4 columns, more than 3; leave out those" in refusal(lambda: read_csv(tmp_path))


# --- images and archives --------------------------------------------------------------------------


def png(width: int, height: int, rows: int) -> bytes:
    """Write a black png by hand, with the header of one that has more rows than it holds."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(1 + width) * rows))
    return b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(10_000, 5_001), (60_000, 60_000)])
def test_an_image_of_too_many_pixels_is_not_unpacked(
    width: int, height: int, tmp_path: Path, refusal: Refusal
) -> None:
    for name in ("ill", "well"):
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / name / "fine.png")
    bomb = tmp_path / "ill" / "bomb.png"
    bomb.write_bytes(png(width, height, rows=1))  # refused before the others are missed

    message = refusal(lambda: load("image-folder", folder=tmp_path, seed=0, options=DataOptions()))

    assert f"{bomb}: more than 50,000,000 pixels; save it smaller" in message


def test_a_program_named_as_an_image_is_not_run(tmp_path: Path, refusal: Refusal) -> None:
    """Pillow would hand PostScript to Ghostscript, whatever the file's name is."""
    for name in ("ill", "well"):
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / name / "fine.png")
    Image.new("L", (8, 8)).save(tmp_path / "ill" / "script.eps")
    (tmp_path / "ill" / "script.eps").rename(tmp_path / "ill" / "script.png")

    message = refusal(lambda: load("image-folder", folder=tmp_path, seed=0, options=DataOptions()))

    assert "script.png: not a readable image" in message


def test_an_archive_that_unpacks_to_gigabytes_is_not_unpacked(
    tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10, "_MOST_UNPACKED", 1_000_000)
    with zipfile.ZipFile(tmp_path / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(20):
            archive.writestr(f"train/cat/{number}.jpg", bytes(60_000))

    message = refusal(lambda: load("cifar10", folder=tmp_path, seed=0, options=DataOptions()))

    assert "images.zip: would take more than 1000000 bytes unpacked" in message


def test_a_gzip_file_that_unpacks_to_gigabytes_is_given_up(
    tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mnist, "_MOST_UNPACKED", 1_000_000)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(1_000_001)))

    message = refusal(lambda: load("mnist", folder=tmp_path, seed=0, options=DataOptions()))

    assert "train-images-idx3-ubyte.gz: more than 1000000 bytes unpacked" in message
