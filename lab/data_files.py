"""Check the files of published data sets: count examples without reading them, compare digests."""

import gzip
import hashlib
import zipfile
from contextlib import suppress
from pathlib import Path

# Examples in the published data sets: training pool and test set together.
COMPLETE = {
    "brain-mri": 253,
    "breast-cancer": 569,
    "chest-xray": 5840,
    "cifar10": 60_000,
    "digits": 1797,
    "heart-disease": 920,
    "mnist": 70_000,
    "susy": 5_000_000,
}
# MD5 digests from the publishers and torchvision: against damage, not against tampering.
_PUBLISHED = {
    "cifar10": {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    "mnist": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
}
_CIFAR10_RECORD = 1 + 3 * 32 * 32


def part(name: str, count: int) -> str:
    """Describe how much of a data set is present; empty if it is complete."""
    complete = COMPLETE.get(name, count)
    return "" if count == complete else f"part: {count:,} of {complete:,}"


def count_examples(name: str, folder: Path | None) -> tuple[int, int] | None:
    """Count training and test examples without reading them; None where that is not possible."""
    if folder is None:
        return None
    with suppress(OSError, zipfile.BadZipFile, EOFError):  # the loader reports these
        match name:
            case "cifar10":
                return _cifar10(folder)
            case "mnist":
                return _mnist(folder, "train"), _mnist(folder, "t10k")
            case "chest-xray":
                return _images(folder / "train"), _images(folder / "test")
    return None


def damaged(name: str, folder: Path) -> list[str] | None:
    """Return the files whose digest differs from the published one; None if there are no files."""
    expected = _PUBLISHED.get(name, {})
    found = {path.name: path for path in folder.rglob("*.gz") if path.name in expected}
    if not found:
        return None
    return [file for file, path in sorted(found.items()) if _md5(path) != expected[file]]


def verified(name: str, folder: Path) -> bool:
    """Return whether the files have the published digests."""
    raw = folder / "MNIST" / "raw"
    raw = raw if raw.is_dir() else folder
    # The loader prefers unpacked files, which have no published digests.
    return name == "mnist" and all(
        (raw / file).is_file()
        and not (raw / file.removesuffix(".gz")).exists()
        and _md5(raw / file) == digest
        for file, digest in _PUBLISHED["mnist"].items()
    )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _cifar10(folder: Path) -> tuple[int, int]:
    binary = folder / "cifar-10-batches-bin"
    binary = binary if binary.is_dir() else folder
    if any(binary.glob("*_batch*.bin")):
        train = sum(path.stat().st_size for path in binary.glob("data_batch_*.bin"))
        test = (binary / "test_batch.bin").stat().st_size
        return train // _CIFAR10_RECORD, test // _CIFAR10_RECORD
    (path,) = sorted(folder.glob("*.zip"))[:1] or [folder / "a zip of JPEGs"]
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    return (
        sum(name.startswith("train/") for name in names),
        sum(name.startswith("test/") for name in names),
    )


def _mnist(folder: Path, which: str) -> int:
    raw = folder / "MNIST" / "raw"
    path = (raw if raw.is_dir() else folder) / f"{which}-labels-idx1-ubyte"
    if path.is_file():
        with path.open("rb") as plain:
            return int.from_bytes(plain.read(8)[4:])
    with gzip.open(path.with_name(f"{path.name}.gz")) as zipped:
        return int.from_bytes(zipped.read(8)[4:])


def _images(folder: Path) -> int:
    return sum(path.suffix.lower() in (".jpeg", ".jpg", ".png") for path in folder.rglob("*"))
