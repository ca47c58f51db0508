"""Shamir's secret sharing of 32-byte seeds: any t shares give the seed, t−1 reveal nothing."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from .secure_leg import SecureSumError

SEED_BYTES = 32
SHARE_BYTES = 33
PRIME = 2**256 + 297  # the smallest prime above 2**256, so that every seed is below it


def split(
    seed: bytes,
    points: Sequence[int],
    threshold: int,
    *,
    draw: Callable[[int], int] = secrets.randbelow,
) -> list[bytes]:
    """Return one share per point: values of a random polynomial of degree t−1 with f(0) = seed."""
    coefficients = [draw(PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(seed, "big")
    shares = []
    for point in points:
        value = 0
        for coefficient in coefficients:
            value = (value + coefficient) * point % PRIME
        shares.append(((value + constant) % PRIME).to_bytes(SHARE_BYTES, "big"))
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the seed from t shares by point; wrong shares give an error or another seed."""
    weights = _weights_at_zero(tuple(shares))
    pairs = zip(weights, shares.values(), strict=True)
    seed = sum(weight * int.from_bytes(share, "big") for weight, share in pairs) % PRIME
    if seed >= 2**256:
        raise SecureSumError("the shares do not belong together")
    return seed.to_bytes(SEED_BYTES, "big")


@lru_cache(maxsize=4)  # all seeds of a leg are combined from the same points
def _weights_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's weights: f(0) = Σ weight · f(point)."""
    weights = []
    for point in points:
        numerator = denominator = 1
        for other in points:
            if other != point:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - point) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(weights)
