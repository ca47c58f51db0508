"""Seeds of masks and tags: pair keys for a generation, and what is derived from them in a leg."""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from protocol.canonical import prefixed

from .secure_leg import SecureLeg
from .shamir import SEED_BYTES

PAIR_SEED_BYTES = PAIR_KEY_BYTES = 32


def derive_pair_key(pair_seeds: dict[str, bytes], generation: bytes) -> bytes:
    """Derive what two members share from the seeds they sealed for each other, by sender."""
    first, second = sorted(pair_seeds)
    info = b"FedDC pair key v1" + prefixed(first.encode()) + prefixed(second.encode())
    return _hkdf(pair_seeds[first] + pair_seeds[second], info, salt=generation)


def leg_pair_seed(pair_key: bytes, leg: SecureLeg) -> bytes:
    """Return the seed of the mask between two members in this leg and cohort.

    Revealing it, because one of the two has dropped out, reveals nothing about other legs.
    """
    return _hkdf(pair_key, b"FedDC pair mask v1" + leg.digest)


def tag_seed(member_key: bytes, leg: SecureLeg) -> bytes:
    """Return the seed of the tag's coefficients, which the coordinator does not know."""
    return _hkdf(member_key, b"FedDC sum tag v1" + leg.digest)


def _hkdf(secret: bytes, info: bytes, *, salt: bytes | None = None) -> bytes:
    return HKDF(SHA256(), length=SEED_BYTES, salt=salt, info=info).derive(secret)
