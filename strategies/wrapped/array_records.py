"""Models as Flower's strategies hold them (an ArrayRecord), and as ours travel (a ModelState)."""

from collections.abc import Collection, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord

from protocol.model_bytes import ModelState


def to_model(arrays: ArrayRecord, buffers: Collection[str]) -> ModelState:
    """Part the arrays into what is trained and what is not, which `buffers` name."""
    unknown = set(buffers) - set(arrays)
    if unknown:
        raise ValueError(f"buffers name {sorted(unknown)}, which initial_arrays do not have")
    values = {name: array.numpy() for name, array in arrays.items()}
    for name, array in values.items():
        if name not in buffers and not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"{name} holds {array.dtype}: name it in buffers")
    return ModelState(
        parameters={name: array for name, array in values.items() if name not in buffers},
        buffers={name: array for name, array in values.items() if name in buffers},
    )


def not_trainable(arrays: ArrayRecord) -> set[str]:
    """Return the names of arrays that no strategy can step: counters, masks."""
    return {
        name
        for name, array in arrays.items()
        if not np.issubdtype(np.dtype(array.dtype), np.floating)
    }


def to_record(model: ModelState) -> ArrayRecord:
    """Return all arrays of a model."""
    arrays = model.parameters | model.buffers
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def record_of(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Return a record of these very arrays: its constructor would read those that are stored."""
    record = ArrayRecord()
    for name, array in arrays.items():
        record[name] = array
    return record
