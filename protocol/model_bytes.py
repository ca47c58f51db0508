"""A model as bytes: parameters, buffers and optimiser state in one safetensors document."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

Arrays = dict[str, NDArray[np.generic]]


class ModelBytesError(ValueError):
    """The bytes are not a model in the agreed form."""


@dataclass(frozen=True)
class ModelState:
    """A model at rest.

    `parameters` are the trainable floating-point tensors, the only ones a wrapped strategy sees.
    `buffers` are all the rest (running statistics, counters, frozen weights). `optimizer` is what
    travels with the model in a hand-over; it is empty for plain SGD and in what is aggregated.
    """

    parameters: Arrays
    buffers: Arrays = field(default_factory=dict)
    optimizer: Arrays = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        tensors: Arrays = {}
        for section, arrays in self._sections():
            for name, array in arrays.items():
                # Not ascontiguousarray, which turns a counter into a vector of one.
                tensors[f"{section}/{name}"] = np.asarray(array, order="C")
        return bytes(save(tensors))

    @staticmethod
    def from_bytes(data: bytes) -> "ModelState":
        try:
            tensors = load(data)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise ModelBytesError(f"not a safetensors document: {error}") from error
        sections: dict[str, Arrays] = {"parameter": {}, "buffer": {}, "optimizer": {}}
        for key, array in tensors.items():
            section, slash, name = key.partition("/")
            if not slash or section not in sections:
                raise ModelBytesError(f"unexpected tensor {key!r}")
            sections[section][name] = array
        return ModelState(sections["parameter"], sections["buffer"], sections["optimizer"])

    def without_optimizer(self) -> "ModelState":
        return ModelState(self.parameters, self.buffers)

    def _sections(self) -> list[tuple[str, Mapping[str, NDArray[np.generic]]]]:
        return [
            ("parameter", self.parameters),
            ("buffer", self.buffers),
            ("optimizer", self.optimizer),
        ]
