"""The published vectors of a secure sum, as every later version has to read and make them."""

import json
from typing import Any

import numpy as np
import pytest

from protocol.model_bytes import ModelState
from protocol.model_size import layout_of
from protocol.sealing.keys import Identity, SealingKey
from protocol.secure_sum.member import Member
from protocol.secure_sum.secure_leg import SecureLeg
from protocol.secure_sum.seeds import derive_pair_key, leg_pair_seed, tag_seed
from protocol.secure_sum.statements import Statement
from protocol.secure_sum.tag import check_tag
from protocol.secure_sum.unmasking import unmask
from protocol.secure_sum.vector import VectorForm
from tests.protocol.make_vectors import VECTORS

VECTOR = json.loads((VECTORS / "secure-sum.json").read_text(encoding="utf-8"))
NAMES = tuple(one["name"] for one in VECTOR["members"])
LEG = SecureLeg(
    VECTOR["experiment"],
    bytes.fromhex(VECTOR["generation"]),
    VECTOR["leg"],
    NAMES,
    VECTOR["threshold"],
)
LIKE = ModelState(
    {"layer.weight": np.zeros((2, 2), np.float32)}, {"norm.batches": np.asarray(0, np.int64)}
)
FORM = VectorForm(layout_of(LIKE.parameters), layout_of(LIKE.buffers), members=len(NAMES))


def unhex(values: dict[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(value) for name, value in values.items()}


def member(one: dict[str, Any]) -> Member:
    everybody = VECTOR["members"]
    sealing = {o["name"]: SealingKey.from_bytes(bytes.fromhex(o["sealing_key"])) for o in everybody}
    identities = {
        o["name"]: Identity.from_bytes(bytes.fromhex(o["identity_seed"])) for o in everybody
    }
    return Member(
        one["name"],
        identities[one["name"]],
        sealing[one["name"]],
        bytes.fromhex(VECTOR["member_key"]),
        unhex(one["pair_keys"]),
        {name: key.public for name, key in sealing.items()},
        {name: identity.public for name, identity in identities.items()},
    )


def statements() -> dict[str, Statement]:
    return {
        one["name"]: Statement.from_bytes(bytes.fromhex(one["statement"]))
        for one in VECTOR["members"]
    }


@pytest.mark.parametrize("one", VECTOR["members"], ids=NAMES)
def test_keys_and_masked_vectors_are_made_again(one: dict[str, Any]) -> None:
    pair_seeds = {o["name"]: unhex(o["pair_seeds"]) for o in VECTOR["members"]}
    for other, key in unhex(one["pair_keys"]).items():
        own = {one["name"]: pair_seeds[one["name"]][other], other: pair_seeds[other][one["name"]]}
        assert derive_pair_key(own, LEG.generation) == key
        assert leg_pair_seed(key, LEG).hex() == one["leg_pair_seeds"][other]
    assert LEG.digest.hex() == VECTOR["leg_digest"]
    assert tag_seed(bytes.fromhex(VECTOR["member_key"]), LEG).hex() == VECTOR["tag_seed"]

    vector = FORM.from_bytes(bytes.fromhex(one["vector_without_tag"])).copy()
    made = member(one).mask(
        LEG,
        vector,
        aggregate=bytes.fromhex(VECTOR["aggregate"]),
        draw_seed=lambda _: bytes.fromhex(one["self_seed"]),
    )

    assert made.vector.to_bytes().hex() == one["masked_vector"]
    assert made.statement.to_bytes().hex() == one["statement"]


@pytest.mark.parametrize("one", VECTOR["members"], ids=NAMES)
def test_survivors_are_signed_and_shares_revealed_again(one: dict[str, Any]) -> None:
    signatures = unhex(VECTOR["survivor_signatures"])
    aggregate = bytes.fromhex(VECTOR["aggregate"])
    own = statements()[one["name"]]
    signed = member(one).sign_survivors(LEG, statements(), own=own, aggregate=aggregate)
    assert signed == signatures[one["name"]]

    shares = {o["name"]: bytes.fromhex(o["sealed_shares"][one["name"]]) for o in VECTOR["members"]}
    revealed = member(one).reveal(LEG, statements(), signatures, shares)

    assert revealed.hex() == VECTOR["revealed"][one["name"]]


def test_the_sum_is_unmasked_again() -> None:
    total = FORM.zeros()
    for one in VECTOR["members"]:
        total.add(FORM.from_bytes(bytes.fromhex(one["masked_vector"])))

    unmask(total, LEG, NAMES, unhex(VECTOR["revealed"]))

    assert total.to_bytes().hex() == VECTOR["sum"]
    check_tag(total, bytes.fromhex(VECTOR["tag_seed"]))
    mean = FORM.decode(total, len(NAMES))
    # Worked out by hand: three models with 0.5, −1.25, (0, 1, 2) and 1/3; counters 100, 103, 106.
    weight = mean.model.parameters["layer.weight"]
    np.testing.assert_array_equal(weight, np.array([[0.5, -1.25], [1, 1 / 3]], np.float32))
    assert mean.model.buffers["norm.batches"] == 103
    assert mean.figures == {"loss": 0.5}
    found = {**mean.model.parameters, **mean.model.buffers}
    assert {name: array.tolist() for name, array in found.items()} == VECTOR["mean"]
