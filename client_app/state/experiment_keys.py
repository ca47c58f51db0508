"""The keys that a hospital's state is encrypted with: one file for each experiment.

A key file that is overwritten takes everything of its experiment with it, wherever the database
has left copies. Which files are in use is written in the database; all others are destroyed.
"""

import logging
import secrets
from collections.abc import Collection
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from operation import files
from operation.disk_space import is_full

from .store import StoreFull, UnreadableExperiment

logger = logging.getLogger(__name__)

KEY_FOLDER = "keys"  # beside the database

_KEY_BYTES = 32
_NONCE_BYTES = 12
_TOKEN_BYTES = 8
_LOST = "the experiment continues without this hospital; `feddc hospital reset` removes it here"


class ExperimentKeys:
    """The folder of the key files, named `<experiment>@<random token>`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ciphers: dict[str, AESGCM] = {}

    def create(self, experiment: str) -> str:
        """Create a key; it is on the disk when its file's name is returned."""
        # With a token, a name is never used twice: a database restored from a backup does not
        # mistake another key for its own.
        name = f"{experiment}@{secrets.token_hex(_TOKEN_BYTES)}"
        key = secrets.token_bytes(_KEY_BYTES)
        try:
            files.make_folder(self._folder)
            files.write_new(self._folder / name, key)
            files.sync_folder(self._folder)
        except OSError as error:
            if is_full(error):
                raise StoreFull(self._folder / name, _KEY_BYTES) from error
            raise
        self._ciphers[name] = AESGCM(key)
        return name

    def encrypt(self, key: str, entry: str, value: bytes) -> tuple[bytes, bytes]:
        """Return a new nonce and the encrypted value, which only opens as this entry's."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce, self._cipher(key).encrypt(nonce, value, entry.encode())

    def decrypt(self, key: str, entry: str, nonce: bytes, value: bytes) -> bytes:
        try:
            return self._cipher(key).decrypt(nonce, value, entry.encode())
        except InvalidTag:
            raise UnreadableExperiment(
                f"{entry} can't be decrypted with {self._folder / key}: one of them was changed; "
                f"{_LOST}"
            ) from None

    def check(self, key: str) -> None:
        """Raise UnreadableExperiment if the key's file is missing or damaged."""
        self._cipher(key)

    def keep_only(self, used: Collection[str]) -> bool:
        """Destroy every other key; return whether all of them are gone."""
        all_gone = True
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if path.name in used:
                continue
            self._ciphers.pop(path.name, None)
            try:
                files.overwrite_and_remove(path)
            except OSError as error:
                all_gone = False
                logger.error(
                    "%s: the key of an ended experiment can't be destroyed (%s); make the folder "
                    "writable, it is tried again at the next request",
                    path,
                    error.strerror,
                )
        return all_gone

    def _cipher(self, key: str) -> AESGCM:
        if key not in self._ciphers:
            self._ciphers[key] = AESGCM(self._read(self._folder / key))
        return self._ciphers[key]

    def _read(self, path: Path) -> bytes:
        try:
            key = path.read_bytes()
        except OSError as error:
            raise UnreadableExperiment(f"{path}: {error.strerror}; {_LOST}") from error
        if len(key) != _KEY_BYTES:
            raise UnreadableExperiment(
                f"{path}: is damaged, it has {len(key)} bytes instead of {_KEY_BYTES}; {_LOST}"
            )
        return key
