"""Decoded images on disk, for this user only: a second start does not decode them again.

An entry's name is a digest of the files' content, of the form, and of the code that computed it.
Entries of files that are no longer in the folder are removed: no copy is left of a patient who
withdraws.
"""

import hashlib
import json
import logging
import mmap
import os
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from learning.data.medical.image_form import Floats
from operation import files

_log = logging.getLogger(__name__)
_CHECKSUM_BYTES = 32
_INDEX = "index.json"
_DECODERS = ("pydicom", "highdicom", "python-gdcm", "pyjpegls", "nibabel", "pillow", "numpy")


class ImageCache:
    """The images of one data folder, below `folder`; None keeps nothing."""

    def __init__(self, folder: Path | None, root: Path) -> None:
        place = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:16]
        self._folder = folder / place if folder else None

    def key(self, digests: Iterable[str], form: str) -> str:
        """Return the name of an image's entry."""
        text = json.dumps([code_version(), form, list(digests)])
        return hashlib.sha256(text.encode()).hexdigest()

    def read(self, key: str, shape: tuple[int, ...]) -> Floats | None:
        """Return an entry, mapped into memory; None if it is missing or damaged."""
        if self._folder is None:
            return None
        try:
            with (self._folder / key).open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        body = memoryview(content)[_CHECKSUM_BYTES:]
        if hashlib.sha256(body).digest() != content[:_CHECKSUM_BYTES]:
            return None
        return np.frombuffer(body, dtype="<f4").reshape(shape)

    def write(self, key: str, features: Floats) -> None:
        """Store an entry; without space on the disk, images are decoded again next time."""
        body = features.astype("<f4").tobytes()
        self._write(key, hashlib.sha256(body).digest() + body)

    def read_index(self) -> dict[str, Any]:
        """Return what was stored about the folder's files, by name."""
        if self._folder is None:
            return {}
        try:
            stored = json.loads((self._folder / _INDEX).read_bytes())
            return dict(stored["files"]) if stored["code"] == code_version() else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def write_index(self, index: dict[str, Any]) -> None:
        """Store what is known about the folder's files."""
        stored = {"code": code_version(), "files": index}
        self._write(_INDEX, json.dumps(stored).encode())

    def keep_only(self, keys: Iterable[str]) -> None:
        """Remove all other entries."""
        if self._folder is None or not self._folder.is_dir():
            return
        kept = {*keys, _INDEX}
        for path in self._folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _write(self, name: str, content: bytes) -> None:
        if self._folder is None:
            return
        try:
            for folder in (self._folder.parent, self._folder):
                if not folder.is_dir():
                    files.make_folder(folder)
                    files.give_to_owner(folder)
            with files.replacing(self._folder / name, durable=False) as draft:
                descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                files.give_to_owner(draft)
        except OSError as error:
            _log.warning("%s: images are not cached (%s)", self._folder, error.strerror)
            self._folder = None


@cache
def code_version() -> str:
    """Return a digest of this package's code and of the decoders' versions."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    for package in _DECODERS:
        try:
            digest.update(f"{package}={version(package)};".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()
