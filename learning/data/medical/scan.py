"""Look at all files of a folder: which are images, of whom, and which can't be read."""

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learning.data.examples import DataError
from learning.data.extras import MissingExtra
from learning.data.medical import dicom, nifti
from learning.data.medical.cache import ImageCache
from learning.data.medical.folder_files import FoundFile, files_below
from learning.data.medical.headers import ImageHeader
from learning.data.sources import check_file, read_bytes

_START_BYTES = 4096
_SUFFIXES = (".dcm", ".dicom", ".ima", ".nii", ".nii.gz")
# A file that changed this recently may change again without another time stamp.
_SETTLED_SECONDS = 2


@dataclass(frozen=True)
class ScannedFile:
    """An image file, what it says about itself, and the digest of its content."""

    name: str
    path: Path
    digest: str
    header: ImageHeader


@dataclass(frozen=True)
class Scan:
    """All files of a folder."""

    images: list[ScannedFile] = field(default_factory=list)
    localizers: int = 0
    copies: int = 0
    """Further files with the same instance number, or the same bytes."""

    others: int = 0
    """Files that are no images and do not claim to be."""

    unreadable: dict[str, str] = field(default_factory=dict)
    """What is wrong, by the file's name."""


def scan(root: Path, cache: ImageCache) -> Scan:
    """Read every file's header; those of unchanged files come from the cache."""
    files, unreadable = files_below(root)
    known = cache.read_index()
    index: dict[str, Any] = {}
    images: dict[str, ScannedFile] = {}
    localizers = copies = others = 0
    for file in files:
        try:
            digest, header = _known(known.get(file.name), file) or _examined(file)
        except MissingExtra:
            raise
        except DataError as error:
            unreadable[file.name] = str(error)
            continue
        if time.time() - file.stat.st_ctime > _SETTLED_SECONDS:
            index[file.name] = [list(file.signature), digest, header.to_json()]
        # An instance that was exported twice is one image.
        identity = header.instance or digest
        if header.kind == "other":
            others += 1
        elif header.is_localizer:
            localizers += 1
        elif identity in images:
            copies += 1
        else:
            images[identity] = ScannedFile(file.name, file.path, digest, header)
    if index != known:
        cache.write_index(index)
    return Scan(list(images.values()), localizers, copies, others, unreadable)


def scan_file(path: Path) -> ScannedFile:
    """Read the header of one file; raise a DataError if it is no image."""
    digest, header = _examined(FoundFile(path.name, path, check_file(path)))
    if header.kind == "other":
        raise DataError(f"{path}: no DICOM or NIfTI image")
    return ScannedFile(str(path), path, digest, header)


def _known(entry: Any, file: FoundFile) -> tuple[str, ImageHeader] | None:
    try:
        signature, digest, header = entry
        if tuple(signature) == file.signature:
            return str(digest), ImageHeader.from_json(header)
    except (TypeError, ValueError):
        pass
    return None


def _examined(file: FoundFile) -> tuple[str, ImageHeader]:
    content = read_bytes(file.path, max(1, file.stat.st_size))
    name = str(file.path)
    start = content[:_START_BYTES]
    if dicom.is_dicom(start):
        header = dicom.read_header(content, name)
    elif nifti.is_nifti(start):
        header = nifti.read_header(content, name)
    elif name.lower().endswith(_SUFFIXES):
        raise DataError(f"{name}: truncated or no image; export it again or remove it")
    else:
        header = ImageHeader("other")
    return hashlib.sha256(content).hexdigest(), header
