"""Models as bytes: read by hand, brought back unchanged, and refused when anything is amiss."""

import json
import struct
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from protocol.model_bytes import Arrays, ModelBytesError, ModelState, Wire

DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
    "bool": "BOOL",
}
arrays = st.dictionaries(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    st.sampled_from(list(DTYPES)).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=3))
    ),
    max_size=3,
)
states = st.builds(ModelState, parameters=arrays, buffers=arrays, optimizer=arrays)
WIDE = settings(max_examples=150, deadline=None)

W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def document(header: object, data: bytes = bytes(8)) -> bytes:
    """Write a safetensors document by hand: header length, JSON header, numbers."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read_by_hand(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    (length,) = struct.unpack("<Q", data[:8])
    header, numbers = json.loads(data[8 : 8 + length]), data[8 + length :]
    return {
        name: (entry["dtype"], entry["shape"], numbers[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def sections(state: ModelState) -> dict[str, Arrays]:
    return {
        "parameter": state.parameters,
        "buffer": state.buffers,
        "optimizer": state.optimizer,
    }


def assert_same(one: ModelState, other: ModelState) -> None:
    for ours, theirs in zip(sections(one).values(), sections(other).values(), strict=True):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            assert (array.dtype, array.shape) == (theirs[name].dtype, theirs[name].shape)
            assert array.tobytes() == theirs[name].tobytes()


@settings(max_examples=80, deadline=None)
@given(states)
def test_a_model_has_every_tensor_once_in_its_section_and_comes_back_bit_by_bit(
    state: ModelState,
) -> None:
    expected = {
        f"{section}/{name}": (DTYPES[str(array.dtype)], list(array.shape), array.tobytes())
        for section, arrays in sections(state).items()
        for name, array in arrays.items()
    }
    assert read_by_hand(state.to_bytes()) == expected
    assert_same(ModelState.from_bytes(state.to_bytes()), state)


def test_a_counter_stays_a_single_number() -> None:
    state = ModelState({"w": np.ones(3)}, {"batches": np.array(7)}, {"step": np.array(2)})

    back = ModelState.from_bytes(state.to_bytes())

    assert back.buffers["batches"].shape == back.optimizer["step"].shape == ()
    assert (int(back.buffers["batches"]), int(back.optimizer["step"])) == (7, 2)


def test_equal_models_are_equal_bytes_however_they_lie_in_memory() -> None:
    matrix, vector = np.arange(6.0).reshape(2, 3), np.arange(4, dtype=np.float32)
    plain = ModelState({"m": matrix, "v": vector}, {"n": np.array(1), "k": np.array(2)})
    others = [
        ModelState({"v": vector, "m": matrix}, {"k": np.array(2), "n": np.array(1)}),
        ModelState({"m": np.asfortranarray(matrix), "v": vector}, plain.buffers),
        ModelState({"m": matrix.T.copy().T, "v": np.repeat(vector, 2)[::2]}, plain.buffers),
        ModelState({"m": matrix.astype(">f8"), "v": vector.astype(">f4")}, plain.buffers),
        ModelState.from_bytes(plain.to_bytes()),
    ]
    for other in others:
        assert other.to_bytes() == plain.to_bytes()
    changed = matrix.copy()
    changed[1, 2] = np.nextafter(5.0, 6.0)
    assert ModelState({"m": changed, "v": vector}, plain.buffers).to_bytes() != plain.to_bytes()


def test_a_name_may_be_in_each_section_and_contain_slashes() -> None:
    state = ModelState({"a/b": np.array(1.0)}, {"a/b": np.array(2.0)}, {"a/b": np.array(3.0)})

    back = ModelState.from_bytes(state.to_bytes())

    assert [float(arrays["a/b"]) for arrays in sections(back).values()] == [1, 2, 3]


def test_not_a_number_travels_as_it_is() -> None:
    # Refusing it is the reader's part: the reader knows whose training diverged.
    numbers = np.array([np.nan, np.inf, -np.inf, -0.0])

    back = ModelState.from_bytes(ModelState({"w": numbers}).to_bytes())

    assert back.parameters["w"].tobytes() == numbers.tobytes()


def test_what_is_aggregated_has_no_optimizer_state() -> None:
    state = ModelState({"w": np.ones(2)}, {"b": np.ones(1)}, {"step": np.array(3)})

    assert_same(state.without_optimizer(), ModelState({"w": np.ones(2)}, {"b": np.ones(1)}))


# --- narrower numbers on the wire -----------------------------------------------------------------

WIRES: list[Wire] = ["float16", "bfloat16"]
floats = hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))


@WIDE
@given(floats)
def test_narrowed_numbers_are_rounded_as_torch_rounds(array: NDArray[np.float32]) -> None:
    for wire, narrow in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
        state = ModelState({"w": array}, {"b": array})

        back = ModelState.from_bytes(state.to_bytes(wire=wire), wire=wire)

        expected = torch.tensor(array).to(narrow).to(torch.float32).numpy()
        for got in (back.parameters["w"], back.buffers["b"]):
            assert isinstance(got, np.ndarray)
            assert (got.dtype, got.shape) == (np.float32, array.shape)
            np.testing.assert_array_equal(got, expected)


def test_a_number_halfway_between_two_goes_to_the_even_one() -> None:
    # 1 + 1/256 lies between 1 and 1 + 1/128, 1 + 3/256 between 1 + 1/128 and 1 + 1/64.
    halfway = ModelState({"w": np.array([1 + 1 / 256, 1 + 3 / 256, -1 - 1 / 256], np.float32)})

    back = ModelState.from_bytes(halfway.to_bytes(wire="bfloat16"), wire="bfloat16")

    assert back.parameters["w"].tolist() == [1, 1 + 1 / 64, -1]


@pytest.mark.parametrize("wire", WIRES)
def test_only_float32_of_a_model_is_narrowed_and_never_its_optimizer(wire: Wire) -> None:
    state = ModelState(
        {"w": np.full(1000, 0.1, np.float32), "wide": np.full(3, 0.1)},
        {"n": np.array(70_001)},
        {"v/w": np.full(1000, 1e-30, np.float32)},
    )

    data = state.to_bytes(wire=wire)
    back = ModelState.from_bytes(data, wire=wire)

    sizes = {name: len(numbers) for name, (_, _, numbers) in read_by_hand(data).items()}
    assert sizes == {
        f"parameter.{wire}/w": 2000,
        "parameter/wide": 24,
        "buffer/n": 8,
        "optimizer/v/w": 4000,
    }
    assert_same(ModelState({}, back.buffers, back.optimizer), ModelState({}, *_rest(state)))
    assert np.array_equal(back.parameters["wide"], state.parameters["wide"])
    # Once narrowed, a model stays as it is: a chain loses nothing more on its way.
    assert back.to_bytes(wire=wire) == data


def _rest(state: ModelState) -> tuple[Arrays, Arrays]:
    return state.buffers, state.optimizer


SINGLE = ModelState({"w": np.ones(2, np.float32)}, {}, {"m/w": np.ones(2, np.float32)})


@pytest.mark.parametrize("agreed", ["same", *WIRES])
@pytest.mark.parametrize("sent", ["same", *WIRES])
def test_a_model_in_another_form_than_agreed_is_refused(agreed: Wire, sent: Wire) -> None:
    data = SINGLE.to_bytes(wire=sent)
    if agreed == sent:
        assert_same(ModelState.from_bytes(data, wire=agreed), SINGLE)
    else:
        with pytest.raises(ModelBytesError, match="unexpected tensor"):
            ModelState.from_bytes(data, wire=agreed)


HALF = {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]}
BITS = HALF | {"dtype": "U16"}
SECOND_FORMS: list[tuple[str, dict[str, Any], Wire]] = [
    ("parameter.same/w", BITS, "same"),
    ("parameter.same/w", W, "same"),
    ("parameter./w", W, "same"),
    ("optimizer.float16/w", HALF, "float16"),
    ("optimizer.bfloat16/w", BITS, "bfloat16"),
    ("parameter.float16/w", BITS, "float16"),
    ("parameter.bfloat16/w", HALF, "bfloat16"),
    ("parameter.float16/w", W, "float16"),
    ("parameter.float16.float16/w", HALF, "float16"),
]


@pytest.mark.parametrize(("name", "entry", "agreed"), SECOND_FORMS)
def test_a_tensor_in_a_form_that_is_never_written_is_refused(
    name: str, entry: dict[str, Any], agreed: Wire
) -> None:
    with pytest.raises(ModelBytesError):
        ModelState.from_bytes(document({name: entry}), wire=agreed)


def test_a_tensor_narrowed_and_whole_is_refused() -> None:
    whole = {"dtype": "F64", "shape": [1], "data_offsets": [8, 16]}
    both = document({"parameter.float16/w": HALF, "parameter/w": whole}, bytes(16))

    with pytest.raises(ModelBytesError, match="duplicate tensor"):
        ModelState.from_bytes(both, wire="float16")


def test_what_does_not_fit_becomes_infinite_and_is_not_hidden() -> None:
    state = ModelState({"w": np.array([1e6, -1e6, 1.0], np.float32)})

    back = ModelState.from_bytes(state.to_bytes(wire="float16"), wire="float16")

    assert back.parameters["w"].tolist() == [np.inf, -np.inf, 1.0]


# --- what is refused ------------------------------------------------------------------------------

REFUSED: dict[str, bytes] = {
    "nothing": b"",
    "less than a length": b"\0" * 7,
    "a length and nothing": struct.pack("<Q", 0),
    "a length that lies": struct.pack("<Q", 10_000) + b"{}",
    "a length of half the memory": struct.pack("<Q", 2**63) + b"{}",
    "not JSON": document(b"tensors", b""),
    "not UTF-8": document(b'{"parameter/\xff":{}}', b""),
    "a list": document([], b""),
    "deep JSON": document(b"[" * 100_000, b""),
    "deep JSON in a tensor": document(b'{"parameter/w":' + b"[" * 9_000, b""),
    "a tensor without a section": document({"w": W}),
    "a tensor of an unknown section": document({"keys/w": W}),
    "a tensor that only begins like a section": document({"parameters/w": W}),
    "an unknown dtype": document({"parameter/w": W | {"dtype": "F31"}}),
    "bfloat16, which NumPy has not": document({"parameter/w": W | {"dtype": "BF16", "shape": [4]}}),
    "float8": document({"parameter/w": W | {"dtype": "F8_E4M3", "shape": [8]}}),
    "float8, other": document({"parameter/w": W | {"dtype": "F8_E5M2", "shape": [8]}}),
    "float4": document({"parameter/w": W | {"dtype": "F4", "shape": [16]}}),
    "a pickle's dtype": document({"parameter/w": W | {"dtype": "object"}}),
    "overlapping tensors": document({"parameter/w": W, "parameter/v": W}),
    "tensors that overlap by half": document(
        {
            "parameter/w": W,
            "parameter/v": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        },
        bytes(12),
    ),
    "a hole between tensors": document(
        {
            "parameter/w": W,
            "parameter/v": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]},
        },
        bytes(16),
    ),
    "offsets beyond the end": document({"parameter/w": W}, bytes(4)),
    "offsets backwards": document({"parameter/w": W | {"data_offsets": [8, 0]}}),
    "negative offsets": document({"parameter/w": W | {"data_offsets": [-8, 0]}}),
    "bytes behind the last tensor": document({"parameter/w": W}, bytes(9)),
    "a shape larger than the data": document({"parameter/w": W | {"shape": [3]}}),
    "a shape smaller than the data": document({"parameter/w": W | {"shape": [1]}}),
    "a shape that overflows": document({"parameter/w": W | {"shape": [2**62, 2**62]}}),
    "a shape that overflows to 2": document({"parameter/w": W | {"shape": [2**63 + 1, 2]}}),
    "a negative shape": document({"parameter/w": W | {"shape": [-2]}}),
    "a fractional shape": document({"parameter/w": W | {"shape": [2.0]}}),
    "a shape of text": document({"parameter/w": W | {"shape": "2"}}),
    "more dimensions than NumPy has": document({"parameter/w": W | {"shape": [2] + [1] * 80}}),
    "an empty tensor of endless width": document(
        {"parameter/w": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}, b""
    ),
    "an empty tensor of endless width, in parts": document(
        {"parameter/w": {"dtype": "F32", "shape": [0] + [2**31] * 9, "data_offsets": [0, 0]}}, b""
    ),
    "metadata that is no text": document({"__metadata__": {"a": [1]}, "parameter/w": W}),
    "half a character in a name": document(rb'{"parameter/\ud800":{"dtype":"F32"}}'),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_bytes_that_are_no_model_are_refused_and_nothing_worse(data: bytes) -> None:
    assert list(ModelState.from_bytes(document({"parameter/w": W})).parameters) == ["w"]
    with pytest.raises(ModelBytesError):
        ModelState.from_bytes(data)


def test_a_pickle_is_refused() -> None:
    with pytest.raises(ModelBytesError):
        ModelState.from_bytes(
            b"\x80\x04\x95\x17\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93."
        )


def test_an_empty_tensor_is_a_tensor() -> None:
    empty = {"dtype": "F32", "shape": [0, 3], "data_offsets": [0, 0]}

    state = ModelState.from_bytes(document({"parameter/w": empty}, b""))

    assert state.parameters["w"].shape == (0, 3)


def test_metadata_is_not_part_of_a_model() -> None:
    noted = document({"__metadata__": {"sender": "north"}, "parameter/w": W})

    state = ModelState.from_bytes(noted)

    assert b"north" not in state.to_bytes()
    assert_same(state, ModelState({"w": np.zeros(2, np.float32)}))


def test_a_model_cut_off_anywhere_is_refused() -> None:
    data = ModelState({"w": np.arange(3.0)}, {"n": np.array(5)}).to_bytes()

    for length in range(len(data)):
        with pytest.raises(ModelBytesError):
            ModelState.from_bytes(data[:length])


def assert_model_or_refused(data: bytes) -> None:
    try:
        state = ModelState.from_bytes(data)
    except ModelBytesError:
        return
    # Whatever is accepted is a model like any other, and can be passed on.
    assert_same(ModelState.from_bytes(state.to_bytes()), state)


def test_a_model_with_any_one_byte_changed_is_a_model_or_refused() -> None:
    data = ModelState({"w": np.ones(1)}, {"n": np.array(5)}).to_bytes()

    for place in range(len(data)):
        for byte in range(0, 256, 3):
            assert_model_or_refused(data[:place] + bytes([byte]) + data[place + 1 :])


@WIDE
@given(st.binary(max_size=120), st.randoms(use_true_random=False))
def test_arbitrary_and_mutated_bytes_are_a_model_or_refused(data: bytes, random: Random) -> None:
    assert_model_or_refused(data)
    assert_model_or_refused(document(data, b""))
    good = ModelState({"w": np.ones((2, 2))}, {"n": np.array(5)}).to_bytes()
    for _ in range(20):
        place, removed = random.randrange(len(good) + 1), random.randrange(4)
        inserted = random.choice([b"", b"0", b"9", b",", b"]", b'"', b"\xff", data[:4]])
        assert_model_or_refused(good[:place] + inserted + good[place + removed :])


ODD: list[Any] = [None, True, -1, 0, 1, 2**31, 2**64, 1.5, "", "F32", [], [0], [2, 2**62], {}]


@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets", "extra"])
def test_an_odd_value_in_the_header_is_a_model_or_refused(field: str) -> None:
    for value in ODD:
        assert_model_or_refused(document({"parameter/w": W | {field: value}}))
        assert_model_or_refused(document({"parameter/w": value, "buffer/w": W}))
        for second in ODD:
            changed = {"dtype": "U8", "shape": second, "data_offsets": [0, 8], field: value}
            assert_model_or_refused(document({"parameter/w": changed}))
