"""A model as a file for people: safetensors with the network's own tensor names, and metadata.

PyTorch loads it with `safetensors.torch.load_file` and `load_state_dict`.
"""

import json
from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from .model_bytes import LENGTH_BYTES, ModelBytesError, ModelState, header_bytes

_MOST_HEADER = 1 << 20
_METADATA = "feddc"


def to_model_file(model: ModelState, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the file's bytes; the optimiser's state is left out."""
    tensors = {
        name: np.asarray(array, order="C")
        for name, array in (model.parameters | model.buffers).items()
    }
    # One entry: safetensors writes several in an order of its own, and equal models differ.
    text = {_METADATA: json.dumps(dict(metadata), sort_keys=True)} if metadata else None
    return bytes(save(tensors, text))


def from_model_file(data: bytes, like: ModelState) -> ModelState:
    """Return a file's model, whose names, shapes and types must be those of the network."""
    if header_bytes(data) > _MOST_HEADER:
        raise ModelBytesError("is not a safetensors file: its header is too long")
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelBytesError(f"is not a safetensors file: {error}") from error
    wanted = like.parameters | like.buffers
    for what, names in (
        ("lacks", wanted.keys() - arrays.keys()),
        ("has, unlike the study's network,", arrays.keys() - wanted.keys()),
    ):
        if names:
            raise ModelBytesError(f"{what} {', '.join(sorted(names)[:3])}")
    for name, array in wanted.items():
        found = arrays[name]
        if (found.shape, found.dtype) != (array.shape, array.dtype):
            raise ModelBytesError(
                f"has {name} as {found.dtype} {found.shape}, but in the study's network it is "
                f"{array.dtype} {array.shape}"
            )
        if not np.isfinite(found).all():
            raise ModelBytesError(f"has values in {name} that are not finite")
    return ModelState(
        {name: arrays[name] for name in like.parameters},
        {name: arrays[name] for name in like.buffers},
    )


def metadata_of(data: bytes) -> dict[str, str]:
    """Return the metadata of a file; empty if it has none or is no model's."""
    length = header_bytes(data)
    if length > _MOST_HEADER:
        return {}
    try:
        header = json.loads(data[LENGTH_BYTES : LENGTH_BYTES + length])
        entries = json.loads(header["__metadata__"][_METADATA])
        return {str(key): str(value) for key, value in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
