"""Models that wait at the server in plain mode: in memory while they are small, else on disk."""

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from flwr.app import Array, ArrayRecord

from strategies.wrapped.array_records import record_of

_IN_MEMORY = 64 * 2**20  # bytes of all models together; beyond that, further ones go to files


class FileArray(Array):
    """An array that is read from a file whenever it is needed."""

    def __init__(self, like: Array, path: Path, start: int) -> None:
        self.dtype, self.shape, self.stype = like.dtype, like.shape, like.stype
        self._path, self._start, self._length = path, start, len(like.data)

    @property
    def data(self) -> bytes:  # type: ignore[override]
        with self._path.open("rb") as file:
            file.seek(self._start)
            return file.read(self._length)


@dataclass(frozen=True)
class _Stored:
    arrays: ArrayRecord
    bytes_in_memory: int
    path: Path | None


class ModelStore:
    """Keeps ArrayRecords by name; what it returns reads its arrays when they are used."""

    def __init__(self, in_memory: int = _IN_MEMORY) -> None:
        self._limit = in_memory
        self._used = 0
        self._models: dict[str, _Stored] = {}
        self._folder: TemporaryDirectory[str] | None = None
        self._files = 0

    def put(self, name: str, arrays: ArrayRecord) -> None:
        """Store a model, in place of the one that has this name."""
        self._drop(name)
        size = sum(len(array.data) for array in arrays.values())
        if self._used + size <= self._limit:
            self._used += size
            self._models[name] = _Stored(arrays, size, None)
        else:
            self._models[name] = self._write(arrays)

    def get(self, name: str) -> ArrayRecord:
        stored = self._models[name]
        if stored.path is None:
            return stored.arrays
        # Copies: Flower leaves the data of an array that it has sent in the array.
        return record_of({key: copy(array) for key, array in stored.arrays.items()})

    def keep_only(self, names: Collection[str]) -> None:
        """Drop all other models."""
        for name in self._models.keys() - set(names):
            self._drop(name)

    def _drop(self, name: str) -> None:
        stored = self._models.pop(name, None)
        if stored is None:
            return
        self._used -= stored.bytes_in_memory
        if stored.path is not None:
            stored.path.unlink()

    def _write(self, arrays: ArrayRecord) -> _Stored:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="feddc-models-")  # removed with this object
        self._files += 1
        path = Path(self._folder.name) / str(self._files)
        stored: dict[str, Array] = {}
        with path.open("wb") as file:
            for name, array in arrays.items():
                stored[name] = FileArray(array, path, file.tell())
                file.write(array.data)
        return _Stored(record_of(stored), 0, path)
