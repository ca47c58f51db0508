"""The expected location and the publisher of each data set's files."""

import errno
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from learning.data.examples import DataError

_MOST_BYTES = 1 << 30
# Reading some of them never ends.
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


@dataclass(frozen=True)
class Source:
    """The source of a data set that needs files."""

    publisher: str
    default: str | None = None
    """Its default folder under FEDDC_DATA, if it has one."""


SOURCES = {
    "brain-mri": Source("Kaggle: navoneel/brain-mri-images-for-brain-tumor-detection", "brain_mri"),
    "chest-xray": Source("Kaggle: paultimothymooney/chest-xray-pneumonia", "chest_xray"),
    "cifar10": Source("the University of Toronto, CIFAR-10 binary version", "cifar10"),
    "csv": Source("your own records, exported as comma-separated values"),
    "heart-disease": Source("the UCI repository, Heart Disease", "heart_disease"),
    "image-folder": Source("your own images, one folder for each class"),
    "medical-folder": Source("your own DICOM or NIfTI files, with a table of labels"),
    "mnist": Source("the MNIST database by LeCun, Cortes and Burges", "mnist"),
    "susy": Source("the UCI repository, SUSY (SUSY.csv.gz)", "susy"),
}


def default_folder(name: str) -> Path | None:
    """Return the data set's default folder under FEDDC_DATA; None if there is none."""
    root, source = os.environ.get("FEDDC_DATA"), SOURCES.get(name)
    if not root or source is None or source.default is None:
        return None
    return Path(root) / source.default


def require(name: str, folder: Path | None) -> Path:
    """Return the folder (for csv also a file); raise a DataError if it does not exist."""
    source = SOURCES[name]
    if folder is None:
        usual = f", or FEDDC_DATA to the folder above {source.default}/" if source.default else ""
        raise DataError(
            f"data set {name!r} needs files: set data-dir in the run config{usual}; "
            f"they come from {source.publisher}"
        )
    if not folder.is_dir() and not (name == "csv" and folder.is_file()):
        raise DataError(
            f"{folder}: no such folder for data set {name!r}: correct data-dir or FEDDC_DATA; "
            f"the files come from {source.publisher}"
        )
    return folder


def read_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """Return a file's content; raise a DataError if it can't be read or has more bytes."""
    check_file(path, most)
    try:
        # It may have been replaced since: opening a pipe must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DataError(f"{path}: not a regular file; remove it from the data")
            return file.read(most)
    except OSError as error:
        raise _unreadable(path, error) from error


def check_file(path: Path, most: int = _MOST_BYTES) -> os.stat_result:
    """Return what the system knows about a file; raise a DataError if it should not be read."""
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    for kind, name in _KINDS.items():
        if stat.S_IFMT(found.st_mode) == kind:
            raise DataError(f"{path}: {name} instead of a file; remove it from the data")
    if found.st_size > most:
        raise DataError(
            f"{path}: {found.st_size} bytes, more than the {most} that are read; split it or "
            "leave out what the study does not use"
        )
    return found


def _unreadable(path: Path, error: OSError) -> DataError:
    match error.errno:
        case errno.ENOENT:
            return DataError(f"{path}: no such file; put it there or correct data-dir")
        case errno.ELOOP:
            return DataError(f"{path}: a link that leads back to itself; remove it from the data")
    return DataError(f"{path}: {error.strerror}; make it readable")


def read_text(path: Path) -> str:
    """Return a file's text without a byte-order mark, which spreadsheets write."""
    return "".join(read_lines(path))


def read_lines(path: Path, most: int = _MOST_BYTES) -> Iterator[str]:
    """Yield a file's lines with their ends; decoded at once, a large file would not fit."""
    data = io.BytesIO(read_bytes(path, most))
    try:
        yield from io.TextIOWrapper(data, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text; save it in the encoding UTF-8") from error
