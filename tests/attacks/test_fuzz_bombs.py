"""Bombs: requests that are small to send, or long, and dear to read, are refused in a second."""

import json
import os
from typing import Any

import pytest

from protocol.messages import (
    Carries,
    ExchangeKeyShares,
    Refusal,
    RefusalCode,
    SetUp,
    TrainLeg,
)
from tests.attacks.scene import answered, scene
from tests.attacks.study import TRAINING, VICTIM

pytestmark = pytest.mark.usefixtures("quiet")

MEGABYTE = 1 << 20


def document(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(shape: list[int], length: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [0, length]}


def leg_with(payload: bytes) -> TrainLeg:
    return scene().training.request(
        VICTIM, carries=Carries.AGGREGATE, sealed_in=None, payload=payload
    )


def set_up_with(**training: Any) -> SetUp:
    new = scene().new
    changed = new.descriptor.model_copy(update={"training": TRAINING | training})
    return SetUp(experiment=new.id, payload=changed.to_bytes())


def shown(payload: bytes) -> ExchangeKeyShares:
    return ExchangeKeyShares(experiment=scene().announced.id, payload=payload)


BOMBS: dict[str, tuple[RefusalCode, Any]] = {
    "millions of empty pieces": (
        RefusalCode.KEYS_REFUSED,
        lambda: shown(bytes(16 * MEGABYTE)),
    ),
    "a million names": (
        RefusalCode.KEYS_REFUSED,
        lambda: shown(b"".join(b"\0\0\0\x08%08d\0\0\0\0" % n for n in range(1_000_000))),
    ),
    "a piece of four gigabytes": (
        RefusalCode.KEYS_REFUSED,
        lambda: shown(b"\0\0\0\x01a" + b"\xff" * 8),
    ),
    "a hundred thousand empty tensors": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with(document({f"parameter/{n}": tensor([0], 0) for n in range(100_000)})),
    ),
    "a tensor of 2^80 numbers": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with(document({"parameter/x": tensor([2**40, 2**40], 0)})),
    ),
    "an empty tensor of many dimensions": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with(document({"parameter/x": tensor([0, *[2**62] * 40], 0)})),
    ),
    "a header of 2^63 bytes": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with((2**63 - 1).to_bytes(8, "little") + b"{}"),
    ),
    "a deep header": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with((500).to_bytes(8, "little") + b'{"a":' * 100),
    ),
    "metadata of megabytes": (
        RefusalCode.MODEL_MISMATCH,
        lambda: leg_with(document({"__metadata__": {"a": "b" * 16 * MEGABYTE}})),
    ),
    "a descriptor of megabytes": (
        RefusalCode.MALFORMED,
        lambda: set_up_with(**{"model-options": '{"hidden":[3]}' + " " * 16 * MEGABYTE}),
    ),
    "fifty thousand settings": (
        RefusalCode.MALFORMED,
        lambda: set_up_with(**{f"k{n}": 1 for n in range(50_000)}),
    ),
    "a list that long": (
        RefusalCode.MALFORMED,
        lambda: set_up_with(**{"model-options": f'{{"hidden":[{"1," * 1_000_000}1]}}'}),
    ),
    "deep options": (
        RefusalCode.DESCRIPTOR_REFUSED,
        lambda: set_up_with(**{"model-options": '{"hidden":' + "[" * 100_000}),
    ),
    "a number of many digits": (
        RefusalCode.DESCRIPTOR_REFUSED,
        lambda: set_up_with(**{"model-options": '{"hidden":[1' + "0" * 100_000 + "]}"}),
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_in_a_second(bomb: str) -> None:
    code, made = BOMBS[bomb]
    reply = answered(scene().study.sign(made()))
    assert isinstance(reply, Refusal)
    assert reply.code == code


def test_a_long_body_that_nobody_signed_is_refused_in_a_second() -> None:
    reply = answered(scene().study.sign(leg_with(os.urandom(MEGABYTE) * 32))[:-64] + bytes(64))
    assert isinstance(reply, Refusal)
    assert reply.code == RefusalCode.BAD_SIGNATURE
