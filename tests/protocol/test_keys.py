"""Keys: what they sign and read is what the raw keys would, and no weak key is taken for one."""

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.sealing.keys import (
    IDENTITY_BYTES,
    SEALING_KEY_BYTES,
    Identity,
    InvalidKey,
    SealingKey,
    is_identity,
    sealing_public_key,
    verify,
)

# A busy machine is no reason to fail.
UNHURRIED = settings(deadline=None)
ALICE, BOB = Identity.from_bytes(b"a" * 32), Identity.from_bytes(b"b" * 32)
KEY = SealingKey.from_bytes(bytes(range(96)))
# RFC 8032, section 7.1, test 1.
RFC_8032_SECRET = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"  # noqa: S105
RFC_8032_PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"

PRIME = 2**255 - 19
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, PRIME) % PRIME


def _edwards_sum(p: tuple[int, int], q: tuple[int, int]) -> tuple[int, int]:
    (x1, y1), (x2, y2) = p, q
    xy = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + xy, -1, PRIME)
    y = (y1 * y2 + x1 * x2) * pow(1 - xy, -1, PRIME)
    return x % PRIME, y % PRIME


def _points_of_small_order() -> set[bytes]:
    """Every encoding of the eight points, from the curve's equation, canonical or not."""
    # -x² + y² = 1 + d x² y² and 2P = (±√-1, 0): then y² = -x², so d y⁴ + 2 y² - 1 = 0.
    encodings = set()
    root = pow(2, (PRIME - 1) // 4, PRIME)
    discriminant = _square_root(1 + D)
    squares = [(-1 + sign * discriminant) * pow(D, -1, PRIME) % PRIME for sign in (1, -1)]
    y = next(r for s in squares if (r := _square_root(s)) is not None)
    step = (root * y % PRIME, y)
    point = (0, 1)
    for _ in range(8):
        for value in {point[1], point[1] + PRIME}:
            if value < 2**255:
                encodings |= {(value + sign * 2**255).to_bytes(32, "little") for sign in (0, 1)}
        point = _edwards_sum(point, step)
    assert point == (0, 1)
    return encodings


def _square_root(square: int) -> int | None:
    square %= PRIME
    root = pow(square, (PRIME + 3) // 8, PRIME)
    for candidate in (root, root * pow(2, (PRIME - 1) // 4, PRIME) % PRIME):
        if candidate * candidate % PRIME == square:
            return candidate
    return None


SMALL_ORDER = sorted(_points_of_small_order())


def _low_order_x25519() -> set[bytes]:
    """Where u = (1 + y) / (1 - y) takes these points on RFC 7748's curve, and -1 on its twist."""
    ys = {int.from_bytes(point, "little") % 2**255 % PRIME for point in SMALL_ORDER} - {1}
    us = {(1 + y) * pow(1 - y, -1, PRIME) % PRIME for y in ys} | {PRIME - 1}
    return {u.to_bytes(32, "little") for v in us for u in (v, v + PRIME) if u < 2**255}


LOW_ORDER_X25519 = sorted(_low_order_x25519())


def test_an_identity_is_the_ed25519_key_of_the_standard() -> None:
    identity = Identity.from_bytes(bytes.fromhex(RFC_8032_SECRET))
    assert identity.public == bytes.fromhex(RFC_8032_PUBLIC)
    assert identity.to_bytes() == bytes.fromhex(RFC_8032_SECRET)


def test_a_signature_verifies_with_the_raw_key_over_the_written_statement() -> None:
    signature = ALICE.sign("announcement", b"data")
    key = Ed25519PublicKey.from_public_bytes(ALICE.public)
    key.verify(signature, b"FedDC announcement v1\x00data")
    with pytest.raises(InvalidSignature):
        key.verify(signature, b"FedDC announcement v1data")
    assert verify(ALICE.public, "announcement", b"data", signature)


def test_a_signature_means_one_thing_said_by_one_person() -> None:
    signature = ALICE.sign("key share", b"data")
    assert not verify(BOB.public, "key share", b"data", signature)
    assert not verify(ALICE.public, "roster", b"data", signature)
    assert not verify(ALICE.public, "key share", b"datum", signature)
    assert not verify(ALICE.public, "key share", b"", signature)
    assert not verify(ALICE.public, "key share", b"data", BOB.sign("key share", b"data"))


@given(st.binary(max_size=100), st.binary(max_size=100))
@UNHURRIED
def test_verify_answers_no_to_anything_malformed(public: bytes, signature: bytes) -> None:
    assert not verify(public, "key share", b"data", signature)
    assert not verify(ALICE.public, "key share", b"data", signature)
    assert not verify(public, "key share", b"data", ALICE.sign("key share", b"data"))


def test_a_signature_cannot_be_turned_into_another_valid_one() -> None:
    signature = ALICE.sign("key share", b"data")
    scalar = int.from_bytes(signature[32:], "little") + GROUP_ORDER
    assert not verify(
        ALICE.public, "key share", b"data", signature[:32] + scalar.to_bytes(32, "little")
    )


def test_the_curve_has_eight_points_of_small_order() -> None:
    # Five y coordinates (0, 1, -1 and two of order 8), each with both signs of x, and 0 and 1
    # once more with the prime added, which still fits below 2²⁵⁵.
    assert len(SMALL_ORDER) == 14
    assert (1).to_bytes(32, "little") in SMALL_ORDER
    assert len(LOW_ORDER_X25519) == 7


@pytest.mark.parametrize("public", SMALL_ORDER, ids=bytes.hex)
def test_a_key_that_anybody_can_sign_for_is_no_identity(public: bytes) -> None:
    """With S = 0 and R = the neutral point, raw Ed25519 accepts one message in eight, or all."""
    forged = (1).to_bytes(32, "little") + bytes(32)
    assert not is_identity(public)
    assert not any(verify(public, "key share", b"%d" % number, forged) for number in range(100))


def test_without_that_check_anybody_could_sign() -> None:
    neutral = (1).to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), b"anything at all")


@given(st.binary(min_size=32, max_size=32))
@UNHURRIED
def test_every_generated_key_is_an_identity(seed: bytes) -> None:
    assert is_identity(Identity.from_bytes(seed).public)
    assert not is_identity(Identity.from_bytes(seed).public[:-1])


def test_a_sealing_key_is_mlkem_seed_then_x25519() -> None:
    mlkem = MLKEM768PrivateKey.from_seed_bytes(bytes(range(64)))
    x25519 = X25519PrivateKey.from_private_bytes(bytes(range(64, 96)))
    assert KEY.public == (
        mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()
    )
    assert len(KEY.public) == SEALING_KEY_BYTES == 1216


def test_keys_survive_being_written_and_read() -> None:
    sealing, identity = SealingKey.generate(), Identity.generate()
    assert SealingKey.from_bytes(sealing.to_bytes()).public == sealing.public
    assert Identity.from_bytes(identity.to_bytes()).public == identity.public


def test_generated_keys_differ() -> None:
    assert len({SealingKey.generate().public for _ in range(20)}) == 20
    assert len({Identity.generate().public for _ in range(20)}) == 20


@pytest.mark.parametrize("length", [0, 31, 33, 64, 95, 97])
def test_a_private_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidKey, match=f"got {length}"):
        SealingKey.from_bytes(bytes(length))
    with pytest.raises(InvalidKey, match=f"got {length}"):
        Identity.from_bytes(bytes(length))


@pytest.mark.parametrize(
    "length", [0, IDENTITY_BYTES, SEALING_KEY_BYTES - 1, SEALING_KEY_BYTES + 1]
)
def test_an_announced_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidKey, match=f"got {length}"):
        sealing_public_key(bytes(length))


def test_an_mlkem_key_with_coefficients_beyond_the_modulus_is_refused() -> None:
    """FIPS 203, section 7.2: the modulus check."""
    with pytest.raises(InvalidKey):
        sealing_public_key(b"\xff" * 3 + KEY.public[3:])


@pytest.mark.parametrize("point", LOW_ORDER_X25519, ids=bytes.hex)
def test_an_x25519_key_of_small_order_is_refused(point: bytes) -> None:
    """RFC 9180, section 7.1.4: a shared secret of zeros would be everybody's."""
    with pytest.raises(InvalidKey):
        sealing_public_key(KEY.public[:-32] + point)
    high_bit = (int.from_bytes(point, "little") | 1 << 255).to_bytes(32, "little")
    with pytest.raises(InvalidKey):
        sealing_public_key(KEY.public[:-32] + high_bit)


def test_no_key_shows_itself_in_a_log() -> None:
    for key in (KEY, ALICE):
        assert key.to_bytes().hex() not in repr(key)
        assert repr(key).endswith("()")
