"""The length of a model is known before it is parsed, and a header's too."""

import json
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from learning.trainer import Network, TaskSpec, Trainer
from protocol.model_bytes import ModelBytesError, ModelState, Wire
from protocol.model_size import ModelSize, layout_of, model_size, optimizer_layouts
from tests.learning.small_trainer import CLASSES, SHAPE, FixedStreams, examples, parsed

TYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
NAMES = st.text('abüz.0_"\\é東\U00020bb7', min_size=1, max_size=12)
TENSORS = st.dictionaries(
    NAMES,
    st.sampled_from(TYPES).flatmap(
        lambda kind: arrays(kind, st.lists(st.integers(0, 12), max_size=3).map(tuple))
    ),
    max_size=6,
)


def size_of(model: ModelState, wire: Wire = "same") -> ModelSize:
    layouts = (layout_of(part) for part in (model.parameters, model.buffers, model.optimizer))
    return model_size(*layouts, wire=wire)


@given(TENSORS, TENSORS, TENSORS, st.sampled_from(get_args(Wire)))
@settings(deadline=None)
def test_the_size_is_that_of_the_bytes_that_are_written(
    parameters: Any, buffers: Any, optimizer: Any, wire: Wire
) -> None:
    model = ModelState(parameters, buffers, optimizer)
    data = model.to_bytes(wire=wire)
    size = size_of(model, wire)
    assert size == ModelSize(int.from_bytes(data[:8], "little"), len(data))
    size.check(data)


@pytest.mark.parametrize(
    ("chosen", "number"),
    [
        ({"optimizer": "sgd"}, 0),
        ({"optimizer": "sgd", "momentum": 0.9}, 1),
        ({"optimizer": "adam"}, 2),
    ],
)
def test_the_states_of_a_hand_over_are_those_of_the_trainer(
    chosen: dict[str, Any], number: int
) -> None:
    network = Network(parsed(**chosen), TaskSpec(SHAPE, CLASSES), seed=0)
    trainer = Trainer(network, examples(), FixedStreams())
    assert list(optimizer_layouts(network.parameter_layout))[number] == trainer.optimizer_layout


def test_a_header_bomb_is_refused_before_it_is_parsed() -> None:
    """Before, a header of 72 MiB took 28 s."""
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"parameter/{number}": entry for number in range(30_000)}).encode()
    bomb = len(header).to_bytes(8, "little") + header
    with pytest.raises(ModelBytesError, match="a header of"):
        ModelState.from_bytes(bomb)


def test_a_header_as_long_as_the_model_is_no_model_of_this_size() -> None:
    model = ModelState({"w": np.zeros(10_000, np.float32)})
    data = model.to_bytes()
    size = size_of(model)
    longer = (size.header + 8).to_bytes(8, "little") + data[8:]
    for wrong in (longer, data[:-1], data + b"\0", b"", data[:7]):
        with pytest.raises(ModelBytesError, match="exactly"):
            size.check(wrong)
