"""A model as bytes: parameters, buffers and optimiser state in one safetensors document."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

Arrays = dict[str, NDArray[np.generic]]
# Number type on the wire: 16 bits halve the bytes, for models that tolerate it; "same" sends
# numbers unchanged. Optimiser state is never narrowed: Adam's second moments would vanish.
Wire = Literal["same", "float16", "bfloat16"]
LENGTH_BYTES = 8  # of the header's length, with which a safetensors document begins
_MOST_HEADER = 1 << 20  # nine thousand tensors; 70 MB of them took half a minute to parse
_SECTIONS = ("parameter", "buffer", "optimizer")


class ModelBytesError(ValueError):
    """The bytes are not a valid model."""


@dataclass(frozen=True)
class ModelState:
    """A model's tensors.

    `parameters` are the trainable floating-point tensors, the only ones a wrapped strategy sees.
    `buffers` are all others (running statistics, counters, frozen weights). `optimizer` is
    the state that travels with the model in a hand-over; it is empty for plain SGD
    and in aggregations.
    """

    parameters: Arrays
    buffers: Arrays = field(default_factory=dict)
    optimizer: Arrays = field(default_factory=dict)

    def to_bytes(self, *, wire: Wire = "same") -> bytes:
        tensors: Arrays = {}
        for section, arrays in self._sections():
            for name, array in arrays.items():
                if wire != "same" and section != "optimizer" and array.dtype == np.float32:
                    tensors[f"{section}.{wire}/{name}"] = _narrow(array, wire)
                else:
                    # Not ascontiguousarray, which turns a counter into a vector of one.
                    tensors[f"{section}/{name}"] = np.asarray(array, order="C")
        return bytes(save(tensors))

    @staticmethod
    def from_bytes(data: bytes, *, wire: Wire = "same") -> "ModelState":
        if (length := header_bytes(data)) > _MOST_HEADER:
            raise ModelBytesError(f"a header of {length} bytes, more than {_MOST_HEADER}")
        try:
            tensors = load(data)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise ModelBytesError(f"not a safetensors document: {error}") from error
        sections: dict[str, Arrays] = {section: {} for section in _SECTIONS}
        for key, array in tensors.items():
            place, slash, name = key.partition("/")
            section, dot, narrowed = place.partition(".")
            # Narrowed is exactly what `to_bytes` narrows: one model has one form.
            narrowable = wire != "same" and section != "optimizer"
            if not slash or section not in sections or (dot and narrowed != wire):
                raise ModelBytesError(f"unexpected tensor {key!r}")
            if (dot and not narrowable) or (not dot and narrowable and array.dtype == np.float32):
                raise ModelBytesError(f"unexpected tensor {key!r} where {wire} was agreed")
            if name in sections[section]:
                raise ModelBytesError(f"duplicate tensor {name!r}")
            sections[section][name] = _widen(array, wire) if dot else array
        return ModelState(sections["parameter"], sections["buffer"], sections["optimizer"])

    @property
    def trainable_numbers(self) -> int:
        """Return how many numbers training changes."""
        return sum(array.size for array in self.parameters.values())

    def is_finite(self, *, wire: Wire = "same") -> bool:
        """Return whether every number is finite, also in the narrower format in transit."""
        for section, arrays in self._sections():
            for array in arrays.values():
                if wire != "same" and section != "optimizer" and array.dtype == np.float32:
                    array = _widen(_narrow(array, wire), wire)
                if not np.isfinite(array).all():
                    return False
        return True

    def digest(self, *, wire: Wire = "same") -> bytes:
        """Return the SHA-256 of the model's bytes."""
        return hashlib.sha256(self.to_bytes(wire=wire)).digest()

    def without_optimizer(self) -> "ModelState":
        return ModelState(self.parameters, self.buffers)

    def _sections(self) -> list[tuple[str, Mapping[str, NDArray[np.generic]]]]:
        return [
            ("parameter", self.parameters),
            ("buffer", self.buffers),
            ("optimizer", self.optimizer),
        ]


def header_bytes(data: bytes) -> int:
    """Return the length of a document's header, as it declares it itself."""
    return int.from_bytes(data[:LENGTH_BYTES], "little")


def _narrow(array: NDArray[np.generic], wire: Wire) -> NDArray[np.generic]:
    """Round float32 to the narrower type; bfloat16, which NumPy lacks, is stored as uint16."""
    if wire == "float16":
        with np.errstate(over="ignore"):  # becomes infinite, which the reader refuses
            return array.astype(np.float16)
    bits = np.asarray(array, dtype=np.float32, order="C").view(np.uint32).astype(np.uint64)
    # To nearest, ties to even. NaN is set explicitly, because rounding could clear its quiet bit.
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded & 0xFFFF).astype(np.uint16)


def _widen(array: NDArray[np.generic], wire: Wire) -> NDArray[np.generic]:
    """Convert narrowed numbers back to float32, which is always exact."""
    expected = np.float16 if wire == "float16" else np.uint16
    if array.dtype != expected:
        raise ModelBytesError(f"{array.dtype} where {wire} was agreed")
    if wire == "float16":
        return array.astype(np.float32)
    bits = np.asarray(array.astype(np.uint32) << 16)  # asarray: a scalar would not stay an array
    return bits.view(np.float32)
