"""The exact number of bytes of a model, known from its tensors' shapes and types alone.

Whoever receives a model compares before it stores or parses anything: a header that is as long as
a model takes minutes to parse.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .model_bytes import LENGTH_BYTES, ModelBytesError, Wire, header_bytes

Layout = Mapping[str, tuple[tuple[int, ...], np.dtype[np.generic]]]

# Number types as safetensors names them, in the order in which it stores them.
_TYPES = {
    np.dtype(name): label
    for name, label in {
        "uint64": "U64",
        "int64": "I64",
        "float64": "F64",
        "float32": "F32",
        "uint32": "U32",
        "int32": "I32",
        "float16": "F16",
        "uint16": "U16",
        "int16": "I16",
        "int8": "I8",
        "uint8": "U8",
        "bool": "BOOL",
    }.items()
}
_ORDER = {dtype: number for number, dtype in enumerate(_TYPES)}
_STEP = np.dtype(np.int64)


@dataclass(frozen=True)
class ModelSize:
    """The length of a model's header and of all its bytes."""

    header: int
    total: int

    def check(self, data: bytes) -> None:
        """Raise ModelBytesError unless the bytes have this length, and so has their header."""
        if len(data) != self.total or header_bytes(data) != self.header:
            raise ModelBytesError(f"{len(data)} bytes where the model has exactly {self.total}")


def model_size(
    parameters: Layout, buffers: Layout, optimizer: Layout, *, wire: Wire = "same"
) -> ModelSize:
    """Return the size of what `ModelState.to_bytes` makes of a model with these tensors."""
    sections = {"parameter": parameters, "buffer": buffers, "optimizer": optimizer}
    entries = [
        entry for section, layout in sections.items() for entry in _entries(section, layout, wire)
    ]
    header, offset = {}, 0
    for name, shape, dtype in sorted(entries, key=lambda entry: (_ORDER[entry[2]], entry[0])):
        end = offset + math.prod(shape) * dtype.itemsize
        header[name] = {
            "dtype": _TYPES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    length = len(text) + -len(text) % 8  # padded, so that numbers are aligned
    return ModelSize(length, LENGTH_BYTES + length + offset)


def layout_of(arrays: Mapping[str, NDArray[np.generic]]) -> Layout:
    """Return the shapes and types of arrays."""
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def optimizer_layouts(parameters: Layout) -> Iterator[Layout]:
    """Yield the states that a model may carry in a hand-over: of SGD, with momentum, of Adam."""
    yield {}
    yield {f"momentum/{name}": form for name, form in parameters.items()}
    moments = {f"{moment}/{name}": form for moment in "mv" for name, form in parameters.items()}
    yield moments | {"step": ((), _STEP)}


def _entries(
    section: str, layout: Layout, wire: Wire
) -> Iterator[tuple[str, tuple[int, ...], np.dtype[np.generic]]]:
    narrow = np.dtype(np.float16 if wire == "float16" else np.uint16)
    for name, (shape, dtype) in layout.items():
        if wire != "same" and section != "optimizer" and dtype == np.float32:
            yield f"{section}.{wire}/{name}", shape, narrow
        else:
            yield f"{section}/{name}", shape, dtype
