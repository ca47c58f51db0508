"""The expected location and the publisher of each data set's files."""

import os
from dataclasses import dataclass
from pathlib import Path

from learning.data.examples import DataError


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


def read_bytes(path: Path) -> bytes:
    """Return a file's content; raise a DataError if it can't be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; put it there or correct data-dir") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; make it readable") from error


def read_text(path: Path) -> str:
    """Return a file's text without a byte-order mark, which spreadsheets write."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text; save it in the encoding UTF-8") from error
