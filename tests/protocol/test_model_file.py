"""A model as a file: read by PyTorch's library, and refused unless it is the network's."""

import numpy as np
import pytest
from safetensors.torch import load

from protocol.model_bytes import ModelBytesError, ModelState
from protocol.model_file import from_model_file, metadata_of, to_model_file

MODEL = ModelState(
    {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, {"n": np.array(7)}, {"m/w": np.ones(2)}
)


def test_a_file_has_the_networks_names_and_no_optimiser() -> None:
    tensors = load(to_model_file(MODEL))
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        "w": [[0, 1, 2], [3, 4, 5]],
        "n": 7,
    }
    assert from_model_file(to_model_file(MODEL), MODEL).digest() == (
        MODEL.without_optimizer().digest()
    )


def test_equal_models_are_equal_bytes_and_metadata_come_back() -> None:
    metadata = {f"key {n}": f"value {n}" for n in range(9)}
    data = to_model_file(MODEL, metadata)
    assert data == to_model_file(MODEL, dict(reversed(metadata.items())))
    assert metadata_of(data) == metadata
    assert metadata_of(to_model_file(MODEL)) == {}


@pytest.mark.parametrize(
    "data",
    [b"", b"junk", bytes(8) + b"x", (1 << 62).to_bytes(8, "little"), b"\x02" + bytes(7) + b"[]"],
)
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(ModelBytesError, match="is not a safetensors file"):
        from_model_file(data, MODEL)
    assert metadata_of(data) == {}
