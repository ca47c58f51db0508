"""Arrays for Flower's strategies without a serialised copy: stored ones, and ones in memory."""

from typing import Any, Protocol

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from protocol.model_bytes import ModelState

_NUMPY = "numpy.ndarray"  # how Flower names its arrays' form


class LoadableModel(Protocol):
    """A model that is read when it is needed."""

    def load(self) -> ModelState:
        """Read the model."""


class ModelReader:
    """Reads stored models and keeps the last: a strategy takes one model's arrays in a row."""

    def __init__(self) -> None:
        self._last: tuple[LoadableModel, ModelState] | None = None

    def load(self, stored: LoadableModel) -> ModelState:
        if self._last is None or self._last[0] is not stored:
            self._last = None  # before the next is read: never two
            self._last = (stored, stored.load())
        return self._last[1]


class StoredArray(Array):
    """Read when it is asked for: a strategy that adds models up holds one of them at a time."""

    def __init__(
        self, reader: ModelReader, stored: LoadableModel, name: str, like: NDArray[np.generic]
    ) -> None:
        self.dtype, self.shape, self.stype = str(like.dtype), like.shape, _NUMPY
        self._reader, self._stored, self._name = reader, stored, name

    @property
    def data(self) -> bytes:  # type: ignore[override]
        return Array(self.numpy()).data

    def numpy(self) -> NDArray[Any]:
        return np.asarray(self._reader.load(self._stored).parameters[self._name])


class MemoryArray(Array):
    """An array in memory: Flower's own would be written to .npy bytes and read again.

    A strategy gets a copy, as from Flower's own, because it may change it.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self.dtype, self.shape, self.stype = str(array.dtype), array.shape, _NUMPY
        self._array = array

    @property
    def data(self) -> bytes:  # type: ignore[override]
        return Array(self._array).data

    def numpy(self) -> NDArray[Any]:
        return self._array.copy()
