"""The parts of a secure sum against slow, independent versions of themselves."""

import hashlib
import hmac
import secrets
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from protocol.model_bytes import ModelState
from protocol.secure_sum import shamir
from protocol.secure_sum.masks import add_masks, pair_masks
from protocol.secure_sum.secure_leg import SecureLeg, SecureSumError
from protocol.secure_sum.seeds import derive_pair_key, leg_pair_seed, tag_seed
from protocol.secure_sum.tag import PRIME, add_tag, check_tag, inner_product
from protocol.secure_sum.vector import FIGURES, MOST_WEIGHT, Vector, VectorForm
from tests.protocol.secure_sum.members import form_for, make_leg, make_model

SEEDS = [hashlib.sha256(bytes([number])).digest() for number in range(4)]


def keystream(seed: bytes, size: int) -> bytes:
    """AES-256 of the blocks 0, 1, 2, …: counter mode by hand."""
    encryptor = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()  # noqa: S305
    blocks = [block.to_bytes(16, "big") for block in range(-(-size // 16))]
    return encryptor.update(b"".join(blocks))[:size]


def hkdf(secret: bytes, info: bytes, salt: bytes = bytes(32)) -> bytes:
    """RFC 5869, for one block of output."""
    key = hmac.digest(salt, secret, hashlib.sha256)
    return hmac.digest(key, info + b"\x01", hashlib.sha256)


# --- Shamir ---------------------------------------------------------------------------------------


def test_the_prime_is_the_smallest_above_all_seeds() -> None:
    def is_prime(n: int) -> bool:  # Miller–Rabin
        odd, twos = n - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in range(2, 40):
            x = pow(base, odd, n)
            if x not in (1, n - 1) and all((x := x * x % n) != n - 1 for _ in range(twos - 1)):
                return False
        return True

    assert [k for k in range(1, 298, 2) if is_prime(2**256 + k)] == [297]
    assert shamir.PRIME == 2**256 + 297


def test_shares_are_the_values_of_the_polynomial() -> None:
    # f(x) = 5 + 3x + 2x²
    coefficients = iter([2, 3])
    shares = shamir.split((5).to_bytes(32, "big"), [1, 2, 3], 3, draw=lambda _: next(coefficients))

    assert [int.from_bytes(share, "big") for share in shares] == [10, 19, 32]
    assert shamir.combine({1: shares[0], 2: shares[1], 3: shares[2]}) == (5).to_bytes(32, "big")


@given(
    st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, n))),
    st.binary(min_size=32, max_size=32),
    st.randoms(),
)
def test_any_t_shares_give_the_seed(sizes: tuple[int, int], seed: bytes, random) -> None:
    count, threshold = sizes
    shares = dict(enumerate(shamir.split(seed, range(1, count + 1), threshold), start=1))
    chosen = random.sample(sorted(shares), threshold)

    assert shamir.combine({point: shares[point] for point in chosen}) == seed


def test_fewer_than_t_shares_fit_every_seed_equally_well() -> None:
    # Two points and any third value at 0 lie on exactly one polynomial of degree 2.
    shares = shamir.split(SEEDS[0], [1, 2], 3)
    values = [int.from_bytes(share, "big") for share in shares]
    for guess in SEEDS:
        constant = int.from_bytes(guess, "big")
        half = pow(2, -1, shamir.PRIME)
        second = (values[1] - 2 * values[0] + constant) * half % shamir.PRIME
        first = (values[0] - constant - second) % shamir.PRIME
        drawn = iter([second, first])
        again = shamir.split(guess, [1, 2], 3, draw=lambda _, drawn=drawn: next(drawn))
        assert again == shares


# --- seeds and masks ------------------------------------------------------------------------------


def test_seeds_are_hkdf_of_what_the_documentation_says() -> None:
    leg = make_leg(["a", "b", "c"])
    names = b"\0\0\0\1a" + b"\0\0\0\1b"

    pair_key = derive_pair_key({"b": SEEDS[1], "a": SEEDS[0]}, b"g" * 32)

    expected = hkdf(SEEDS[0] + SEEDS[1], b"FedDC pair key v1" + names, b"g" * 32)
    assert pair_key == expected
    described = b"FedDC secure leg v1" + b"\0\0\0\2e1" + b"g" * 32 + bytes([0] * 7 + [7])
    described += bytes([0] * 7 + [3]) + names + b"\0\0\0\1c"
    assert leg.digest == hashlib.sha256(described).digest()
    assert leg_pair_seed(pair_key, leg) == hkdf(pair_key, b"FedDC pair mask v1" + leg.digest)
    assert tag_seed(SEEDS[2], leg) == hkdf(SEEDS[2], b"FedDC sum tag v1" + leg.digest)


@pytest.mark.parametrize("narrow", [False, True])
def test_masks_are_keystreams_added_modulo_the_size_of_the_integers(narrow: bool) -> None:
    model = make_model(1, size=200_000)  # longer than a chunk
    form = form_for(model, 5, narrow=narrow)
    vector = form.encode(model)
    numbers = vector.numbers.copy()
    extras = vector.extras.copy()

    add_masks(vector, SEEDS[:2], SEEDS[2:])

    bits = 32 if narrow else 64
    streams = [keystream(seed, form.length) for seed in SEEDS]
    masks = [np.frombuffer(s[: numbers.nbytes], f"<u{bits // 8}").astype(object) for s in streams]
    expected = (numbers.astype(object) + masks[0] + masks[1] - masks[2] - masks[3]) % 2**bits
    assert (vector.numbers.astype(object) == expected).all()
    tails = [np.frombuffer(s[numbers.nbytes :], "<u8").astype(object) for s in streams]
    expected = (extras.astype(object) + tails[0] + tails[1] - tails[2] - tails[3]) % 2**64
    assert (vector.extras.astype(object) == expected).all()


def test_the_first_of_two_members_adds_what_the_other_subtracts() -> None:
    assert pair_masks("b", {"a": SEEDS[0], "c": SEEDS[1]}) == ([SEEDS[1]], [SEEDS[0]])
    assert pair_masks("c", {"b": SEEDS[1]}) == ([], [SEEDS[1]])


# --- tags -----------------------------------------------------------------------------------------


def slow_inner_product(vector: Vector, seed: bytes) -> int:
    def signed(section: np.ndarray) -> list[int]:
        return [int(value) for value in section.view(f"<i{section.itemsize}")]

    values = signed(vector.numbers) + signed(vector.extras[:-4])
    words = np.frombuffer(keystream(seed, 8 * len(values)), "<u8")
    return sum(int(r) * x for r, x in zip(words, values, strict=True)) % (2**61 - 1)


@pytest.mark.parametrize("narrow", [False, True])
def test_a_tag_is_the_inner_product_with_the_keystream(narrow: bool) -> None:
    model = make_model(1, size=40_000)
    vector = form_for(model, 5, narrow=narrow).encode(model)

    assert inner_product(vector, SEEDS[0]) == slow_inner_product(vector, SEEDS[0])


def test_a_tag_is_exact_for_the_largest_numbers() -> None:
    extremes = np.array([2**60, -(2**60), -1, 0, 1, 2**63 - 1, -(2**63)] * 5000, dtype=np.int64)
    vector = Vector(extremes.view(np.uint64), np.zeros(14, dtype=np.uint64))

    assert inner_product(vector, SEEDS[0]) == slow_inner_product(vector, SEEDS[0])


def test_the_tag_of_a_sum_is_right_and_that_of_any_other_is_not() -> None:
    models = [make_model(number) for number in range(50)]
    form = form_for(models[0], 50)
    total = form.zeros()
    for model in models:
        vector = form.encode(model)
        add_tag(vector, SEEDS[0])
        total.add(vector)
    check_tag(total, SEEDS[0])

    for section, place in ((total.numbers, 0), (total.extras, 0), (total.extras, -1)):
        section[place] += np.uint64(1)
        with pytest.raises(SecureSumError, match="tag is wrong"):
            check_tag(total, SEEDS[0])
        section[place] -= np.uint64(1)
    with pytest.raises(SecureSumError, match="tag is wrong"):
        check_tag(total, SEEDS[1])
    assert PRIME == 2**61 - 1


# --- numbers --------------------------------------------------------------------------------------


@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=20), st.integers(1, 1000))
def test_numbers_become_the_nearest_fixed_point(values: list[float], members: int) -> None:
    model = ModelState({"w": np.array(values, dtype=np.float32)})
    for narrow in (False, True):
        form = form_for(model, members, narrow=narrow)
        numbers = form.encode(model).numbers
        bits = 32 if not narrow else max(0, ((2**31 - 1) // members).bit_length() - 1 - 6)
        signed = numbers.view(f"<i{numbers.itemsize}")
        for value, number in zip(values, signed, strict=True):
            assert abs(Fraction(value) * 2**bits - int(number)) <= Fraction(1, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**28, -(2.0**28), 3e38])
@pytest.mark.parametrize("where", ["parameter", "buffer"])
@pytest.mark.parametrize("narrow", [False, True])
def test_numbers_out_of_range_are_refused_and_never_clipped(
    value: float, where: str, narrow: bool
) -> None:
    array = np.array([0.5, value, 1.0], dtype=np.float32)
    fine = np.ones(3, dtype=np.float32)
    is_parameter = where == "parameter"
    model = ModelState(
        {"w": array if is_parameter else fine}, {"b": fine if is_parameter else array}
    )
    with pytest.raises(SecureSumError, match="out of range"):
        form_for(model, 3, narrow=narrow).encode(model)


def test_counters_out_of_range_are_refused() -> None:
    model = ModelState({}, {"n": np.array([-(2**63), 2**62], dtype=np.int64)})
    with pytest.raises(SecureSumError, match="n has values"):
        form_for(model, 3).encode(model)


@pytest.mark.parametrize(("weighted", "weight"), [(False, 0), (False, 2), (True, 0), (True, 65536)])
def test_weights_out_of_range_are_refused(weighted: bool, weight: int) -> None:
    model = make_model(0)
    with pytest.raises(SecureSumError, match="weight"):
        form_for(model, 3, weighted=weighted).encode(model, weight=weight)
    assert MOST_WEIGHT == 65535


def test_the_largest_values_of_all_members_add_up_without_overflow() -> None:
    largest = (2**60 // 1000) / 2**32
    model = ModelState({"w": np.array([largest, -largest])}, {"b": np.array([largest])})
    form = form_for(model, 1000)
    total = form.zeros()
    for _ in range(1000):
        total.add(form.encode(model))

    mean = form.decode(total, 1000)

    np.testing.assert_allclose(mean.model.parameters["w"], [largest, -largest], rtol=1e-12)


def implausible() -> dict[str, tuple[int, int]]:
    """Places counted from the end of the extras, and what is added there."""
    after_weight = 1 + 2 * len(FIGURES) + 4
    return {
        "a weight of one more": (-after_weight - 1, 1),
        "a norm beyond all bounds": (-after_weight, 2**62),
        "a figure of more than all members": (-after_weight + 1, 1),
        "a figure of fewer than none": (-after_weight + 1, -4),
        "a buffer beyond all bounds": (0, 2**62),
    }


@pytest.mark.parametrize("what", list(implausible()))
def test_an_implausible_sum_is_refused(what: str) -> None:
    model = make_model(3)
    form = form_for(model, 4)
    total = form.zeros()
    for _ in range(3):
        total.add(form.encode(model, figures={"loss": 0.5}))
    assert form.decode(total, 3).figures == {"loss": 0.5}

    place, change = implausible()[what]
    total.extras.view("<i8")[place] += change

    with pytest.raises(SecureSumError):
        form.decode(total, 3)


def test_a_figure_that_not_all_members_add_is_left_out() -> None:
    """The policy of one may have become stricter during the experiment."""
    model = make_model(3)
    form = form_for(model, 4)
    total = form.zeros()
    for figures in ({"loss": 0.5, "accuracy": 0.25}, {"accuracy": 0.25}):
        total.add(form.encode(model, figures=figures))
    mean = form.decode(total, 2)
    assert mean.figures == {"accuracy": 0.25}
    assert mean.weight == 2


def test_a_vector_of_another_length_is_refused() -> None:
    form = VectorForm({}, {}, members=3)
    for length in (0, form.length - 1, form.length + 1):
        with pytest.raises(SecureSumError, match="bytes"):
            form.from_bytes(secrets.token_bytes(length))


@pytest.mark.parametrize(
    ("cohort", "t"),
    [(("a", "a", "b"), 2), (("b", "a"), 2), (("a", "b"), 3), (("a", "b"), 1), ((), 2)],
)
def test_a_leg_needs_a_sorted_cohort_that_can_reach_the_threshold(
    cohort: tuple[str, ...], t: int
) -> None:
    with pytest.raises(SecureSumError):
        SecureLeg("e1", b"g" * 32, 1, cohort, t)
