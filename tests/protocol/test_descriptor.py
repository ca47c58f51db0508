"""The descriptor: read back as written, or refused; what a hospital agrees to is unambiguous."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from protocol.descriptor import Descriptor, DescriptorError
from protocol.schedule import Ending, Schedule, schedule_commitment, schedule_seed

WIDE = settings(max_examples=150, deadline=None)
SEED = bytes(range(32))
ROSTER, FIRST_MODEL = bytes(range(100, 132)), bytes(range(50, 82))
FIELDS: dict[str, Any] = {
    "aggregation_period": 5,
    "classes": 2,
    "codebook": None,
    "daisy_period": 1,
    "experiment": "e1",
    "first_model": FIRST_MODEL.hex(),
    "first_model_is_given": False,
    "aggregate": "verified",
    "minimum_cohort": 2,
    "averaging": "plain",
    "fraction": 1.0,
    "init": "shared",
    "roster": ROSTER.hex(),
    "rounds": 10,
    "schedule_commitment": None,
    "sealed": True,
    "shape": [1, 8, 8],
    "training": {"learning-rate": 0.1, "model": "mlp", "batch-size": 4, "nesterov": False},
    "training_seed": SEED.hex(),
    "version": 2,
    "weighted": False,
}

names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20)
positive = st.integers(1, 2**53 - 1)
scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
)
digests = st.binary(min_size=32, max_size=32)
descriptors = st.builds(
    lambda first, **fields: Descriptor(**fields, **first),
    first=st.just({"init": "own"})
    | st.fixed_dictionaries(
        {
            "init": st.just("shared"),
            "first_model": digests,
            "first_model_is_given": st.booleans(),
        }
    ),
    experiment=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    rounds=positive,
    daisy_period=st.none() | positive,
    aggregation_period=st.none() | positive,
    shape=st.lists(positive, max_size=4).map(tuple),
    classes=st.integers(0, 2**16),
    training=st.dictionaries(names, scalars, max_size=4),
    training_seed=st.binary(min_size=1, max_size=64),
    sealed=st.booleans(),
    codebook=st.none() | digests,
    roster=st.binary(min_size=32, max_size=32),
)


def dumped(fields: object) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def test_the_bytes_are_those_of_the_written_format() -> None:
    descriptor = Descriptor(
        experiment="e1",
        rounds=10,
        daisy_period=1,
        aggregation_period=5,
        init="shared",
        shape=(1, 8, 8),
        classes=2,
        training={"model": "mlp", "learning-rate": 0.1, "batch-size": 4, "nesterov": False},
        training_seed=SEED,
        sealed=True,
        roster=ROSTER,
        first_model=FIRST_MODEL,
    )
    assert descriptor.to_bytes() == (
        b'{"aggregate":"verified","aggregation_period":5,"averaging":"plain","classes":2,'
        b'"codebook":null,"daisy_period":1,"experiment":"e1",'
        b'"first_model":"32333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f5051",'
        b'"first_model_is_given":false,"fraction":1.0,"init":"shared","minimum_cohort":2,'
        b'"roster":"6465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80818283",'
        b'"rounds":10,"schedule_commitment":null,"sealed":true,"shape":[1,8,8],'
        b'"training":{"batch-size":4,'
        b'"learning-rate":0.1,"model":"mlp","nesterov":false},"training_seed":'
        b'"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f","version":2,'
        b'"weighted":false}'
    )
    assert Descriptor.from_bytes(descriptor.to_bytes()) == descriptor


@WIDE
@given(descriptors)
def test_a_descriptor_comes_back_as_it_was(descriptor: Descriptor) -> None:
    back = Descriptor.from_bytes(descriptor.to_bytes())

    assert back == descriptor
    # 1, 1.0 and true are equal to Python and three different settings to a trainer.
    assert {key: type(value) for key, value in back.training.items()} == {
        key: type(value) for key, value in descriptor.training.items()
    }


@WIDE
@given(descriptors)
def test_a_descriptor_read_by_hand_has_its_fields(descriptor: Descriptor) -> None:
    fields = json.loads(descriptor.to_bytes())

    assert fields.pop("version") == 2
    assert bytes.fromhex(fields.pop("training_seed")) == descriptor.training_seed
    assert tuple(fields.pop("shape")) == descriptor.shape
    for name in ("roster", "codebook", "first_model", "schedule_commitment"):
        digest = fields.pop(name)
        assert (digest and bytes.fromhex(digest)) == getattr(descriptor, name)
    assert fields == {name: getattr(descriptor, name) for name in fields}


def test_periods_that_never_come_are_none() -> None:
    never = Descriptor.from_bytes(
        dumped(FIELDS | {"daisy_period": None, "aggregation_period": None})
    )

    assert (never.daisy_period, never.aggregation_period) == (None, None)


@pytest.mark.parametrize(
    "impossible",
    [
        {"schedule_commitment": "00" * 32, "daisy_period": None},
        {"schedule_commitment": "00" * 32, "daisy_period": 6},
    ],
)
def test_a_schedule_that_can_not_be_is_refused(impossible: dict[str, Any]) -> None:
    with pytest.raises(DescriptorError, match="schedule"):
        Descriptor.from_bytes(dumped(FIELDS | impossible))


def test_the_schedule_is_the_coordinators_and_a_random_one_shows_only_its_legs() -> None:
    descriptor = Descriptor.from_bytes(dumped(FIELDS | {"rounds": 40}))
    assert descriptor.schedule().legs == Schedule(40, 1, 5).legs

    seed = schedule_seed(SEED)
    committed = descriptor.model_copy(update={"schedule_commitment": schedule_commitment(seed)})
    drawn, shown = committed.schedule(seed).legs, committed.schedule().legs
    assert drawn == Schedule(40, 1, 5, secret=seed).legs
    assert [leg.last_round for leg in drawn] == [leg.last_round for leg in shown]
    assert {leg.ending for leg in shown[:-1]} == {Ending.HAND_OVER}
    assert {leg.ending for leg in drawn[:-1]} == {Ending.HAND_OVER, Ending.AGGREGATION}


def test_a_descriptor_does_not_change_and_does_not_print_its_seed() -> None:
    descriptor = Descriptor.from_bytes(dumped(FIELDS))

    with pytest.raises(ValidationError, match="frozen"):
        descriptor.rounds = 11
    assert "training_seed" not in repr(descriptor)
    assert repr(SEED) not in repr(descriptor)


WRONG: list[tuple[str, Any]] = [
    *[("version", wrong) for wrong in (0, 1, 3, "2", None, True, 2.0)],
    *[("experiment", wrong) for wrong in ("", 1, None, ["e1"], "e" * 65, "e\n1", "e\x1b[0m")],
    # Hospitals file what they remember under the experiment's name.
    *[("experiment", wrong) for wrong in ("e1/answer", "../e1", ".e1", "e 1", "é")],
    *[("rounds", wrong) for wrong in ("x", "10", 0, -1, 10.0, True, None, [10], 2**53, 10**400)],
    *[("daisy_period", wrong) for wrong in ("never", 0, -1, 1.5, False, [], 2**53)],
    *[("aggregation_period", wrong) for wrong in ("5", 0, -5, 5.0, True, {}, 2**53)],
    *[("fraction", wrong) for wrong in (0.0, 1.1, "1", None, 1)],
    *[("schedule_commitment", wrong) for wrong in ("", "00" * 31, 7, "zz" * 32)],
    # Only a shared first model has a digest, and only a shared one can be given.
    *[("first_model", wrong) for wrong in (None, "", "00" * 33, 7)],
    *[("first_model_is_given", wrong) for wrong in (0, "true", None)],
    ("init", "own"),
    *[("init", wrong) for wrong in ("zero", "", None, 0, ["shared"], "Shared")],
    *[("shape", wrong) for wrong in ([1.5], ["8"], [0], [-8], [True], [None], [[8]], 8, None)],
    *[("shape", wrong) for wrong in ("188", {"0": 8}, [2**53])],
    *[("classes", wrong) for wrong in ("2", -1, 2.0, True, None, [2], 2**16 + 1)],
    *[("training", wrong) for wrong in (None, [], "mlp", 1, [["model", "mlp"]])],
    *[("training", {"model": wrong}) for wrong in (None, ["mlp"], {"name": "mlp"}, [])],
    *[("training", {"rate": wrong}) for wrong in (float("nan"), float("inf"), 2**63, 10**400)],
    *[("training", {wrong: 1}) for wrong in ("", "k" * 201, "key\n")],
    *[("training_seed", wrong) for wrong in ("", "xyz", "0", 7, None, [1], "00" * 65, "0 0")],
    *[("training_seed", wrong) for wrong in (SEED.hex().upper(), SEED.hex() + " ", "0x00")],
    *[("sealed", wrong) for wrong in (0, 1, "true", None, [], "")],
    *[("codebook", wrong) for wrong in ("", "north", [], 7, ROSTER.hex()[2:], "zz" * 32)],
    *[("roster", wrong) for wrong in ("", "north", ["north"], None, ROSTER.hex()[2:], 7)],
    *[("roster", wrong) for wrong in (ROSTER.hex() + "00", ROSTER.hex().upper(), "zz" * 32)],
]


@pytest.mark.parametrize(("field", "wrong"), WRONG, ids=lambda value: repr(value)[:40])
def test_a_field_of_the_wrong_type_or_size_is_refused(field: str, wrong: object) -> None:
    assert Descriptor.from_bytes(dumped(FIELDS)).rounds == 10
    with pytest.raises(DescriptorError, match=r"^not a descriptor: "):
        Descriptor.from_bytes(dumped(FIELDS | {field: wrong}))


@pytest.mark.parametrize(
    "wrong", [{"rounds": "10"}, {"shape": [1, 8, 8]}, {"sealed": 1}, {"classes": 2.0}]
)
def test_a_descriptor_made_by_the_coordinator_is_checked_as_strictly(wrong: dict[str, Any]) -> None:
    made = Descriptor.from_bytes(dumped(FIELDS)).model_dump()

    assert Descriptor(**made).to_bytes() == dumped(FIELDS)
    with pytest.raises(ValidationError):
        Descriptor(**(made | wrong))


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_refused(field: str) -> None:
    with pytest.raises(DescriptorError):
        Descriptor.from_bytes(dumped({key: FIELDS[key] for key in FIELDS if key != field}))


def test_an_extra_field_is_refused() -> None:
    with pytest.raises(DescriptorError):
        Descriptor.from_bytes(dumped(FIELDS | {"code": "import os"}))


SECOND_SPELLINGS = {
    "white space": dumped(FIELDS).replace(b",", b" ,", 1),
    "another order": json.dumps(dict(reversed(FIELDS.items())), separators=(",", ":")).encode(),
    "a key twice": dumped(FIELDS).replace(b'"rounds":10', b'"rounds":10,"rounds":10'),
    "a rate written longer": dumped(FIELDS).replace(b"0.1", b"0.10"),
    "a rate with an exponent": dumped(FIELDS).replace(b"0.1", b"1e-1"),
    "an escape": dumped(FIELDS).replace(b"mlp", rb"ml\u0070"),
}


@pytest.mark.parametrize("data", SECOND_SPELLINGS.values(), ids=SECOND_SPELLINGS)
def test_a_second_spelling_of_a_descriptor_is_refused(data: bytes) -> None:
    with pytest.raises(DescriptorError):
        Descriptor.from_bytes(data)


HOSTILE = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[1]",
    "not UTF-8": b'{"version":"\xff"}',
    "deep": b"[" * 200_000,
    "deep in a field": dumped(FIELDS).replace(b"[1,8,8]", b"[" * 5_000 + b"]" * 5_000),
    "a million digits": dumped(FIELDS).replace(b'"rounds":10', b'"rounds":' + b"1" * 1_000_000),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(DescriptorError):
        Descriptor.from_bytes(data)


def assert_read_exactly_or_refused(data: bytes) -> None:
    try:
        descriptor = Descriptor.from_bytes(data)
    except DescriptorError:
        return
    assert descriptor.to_bytes() == data


def test_a_descriptor_cut_off_anywhere_is_refused() -> None:
    data = dumped(FIELDS)

    for length in range(len(data)):
        with pytest.raises(DescriptorError):
            Descriptor.from_bytes(data[:length])


def test_a_descriptor_with_any_one_byte_changed_is_read_exactly_or_refused() -> None:
    data = dumped(FIELDS)

    for place in range(len(data)):
        for byte in range(0, 256, 5):
            assert_read_exactly_or_refused(data[:place] + bytes([byte]) + data[place + 1 :])


@WIDE
@given(st.binary(max_size=100), st.randoms(use_true_random=False))
def test_arbitrary_and_mutated_bytes_are_read_exactly_or_refused(
    noise: bytes, random: Random
) -> None:
    assert_read_exactly_or_refused(noise)
    data = dumped(FIELDS)
    for _ in range(20):
        place, removed = random.randrange(len(data) + 1), random.randrange(4)
        inserted = random.choice([b"", b"0", b",", b"]", b"}", b'"', b"\xff", b"null", noise[:5]])
        assert_read_exactly_or_refused(data[:place] + inserted + data[place + removed :])
