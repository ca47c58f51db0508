"""The spool: stores models at the coordinator between two messages, in memory or on disk.

Envelopes of many hospitals do not fit into memory together, and survive a crash only on disk.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from operation import files
from protocol.model_bytes import ModelState, Wire


class Spool(ABC):
    """Bytes by name. A name is written once, or again with the same bytes."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Store the bytes; on disk, they survive a crash once this returns."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """Return the bytes kept under a name."""

    @abstractmethod
    def keep_only(self, names: Collection[str]) -> None:
        """Delete everything else."""


class MemorySpool(Spool):
    """Keeps the bytes in memory: for simulations, which are not resumed."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self._kept[name] = data

    def get(self, name: str) -> bytes:
        return self._kept[name]

    def keep_only(self, names: Collection[str]) -> None:
        self._kept = {name: data for name, data in self._kept.items() if name in names}


class DiskSpool(Spool):
    """Keeps each model in a file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    def put(self, name: str, data: bytes) -> None:
        files.replace(self._folder / name, data, mode=0o600)

    def get(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def keep_only(self, names: Collection[str]) -> None:
        for path in self._folder.iterdir():
            if path.name not in names:
                path.unlink()


@dataclass
class StoredModel:
    """A model in a spool, read when it is needed and not kept."""

    spool: Spool
    name: str
    wire: Wire

    def load(self) -> ModelState:
        data = self.spool.get(self.name)
        return ModelState.from_bytes(data, wire=self.wire).without_optimizer()
