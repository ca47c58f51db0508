"""Where the files of each data set are expected, and who publishes them."""

import os
from dataclasses import dataclass
from pathlib import Path

from learning.data.examples import DataError


@dataclass(frozen=True)
class Source:
    """Where a data set that needs files comes from."""

    publisher: str
    default: str | None = None
    """Its folder under FEDDC_DATA, if it has a usual one."""


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
    """Return the data set's usual folder under FEDDC_DATA; None where there is none."""
    root, source = os.environ.get("FEDDC_DATA"), SOURCES.get(name)
    if not root or source is None or source.default is None:
        return None
    return Path(root) / source.default


def require(name: str, folder: Path | None) -> Path:
    """Return the folder (for csv also a file) if it is there."""
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
    """Return a file's content, or say what keeps it from being read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; put it there or correct data-dir") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; make it readable") from error


def read_text(path: Path) -> str:
    """Return a file's text; a byte-order mark, as spreadsheets write it, is dropped."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text; save it in the encoding UTF-8") from error
