"""Counter-based random streams: every draw of a run can be repeated alone and in any order.

A stream is named by a secret seed, a purpose and counters (a round, a leg, a hospital's position).
No generator is shared, so results do not depend on how rounds are grouped into legs, on the order
of requests, or on the engine.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

SEED_BYTES = 32


def derive_seed(seed: int, purpose: str) -> bytes:
    """Derive one of a simulation's secrets, one-way, from its public `--seed`.

    Real experiments draw their secrets, because anyone who knows the seed can compute every route.
    """
    return _digest(seed.to_bytes(16, "big", signed=True), f"feddc/{purpose}")


def private_seed(secret: bytes, experiment: str) -> bytes:
    """Derive the seed of one hospital's streams in an experiment from its own secret."""
    return HKDF(
        SHA256(), length=SEED_BYTES, salt=None, info=b"streams " + experiment.encode()
    ).derive(secret)


def stream(seed: bytes, purpose: str, *counters: int) -> np.random.Generator:
    """Return the generator named by (seed, purpose, counters); equal names give equal numbers."""
    key = _digest(seed, purpose, *counters)
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "big")))


def stream_seed(seed: bytes, purpose: str, *counters: int) -> int:
    """Return a 63-bit seed for generators that are not NumPy's (torch takes a signed integer)."""
    return int.from_bytes(_digest(seed, purpose, *counters)[:8], "big") >> 1


@dataclass(frozen=True)
class TrainingStreams:
    """All randomness of the hospital at `position` in the roster, indexed by the global round."""

    seed: bytes = field(repr=False)
    position: int

    def batch(self, round_: int, examples: int, size: int) -> NDArray[np.int64]:
        """Draw a round's mini-batch without replacement."""
        rng = stream(self.seed, "batch", self.position, round_)
        return rng.choice(examples, size, replace=False).astype(np.int64)

    def dropout_seed(self, round_: int) -> int:
        """Return the seed of a round's dropout."""
        return stream_seed(self.seed, "dropout", self.position, round_)

    def init_seed(self) -> int:
        """Return the seed of the model that this hospital initialises itself."""
        return stream_seed(self.seed, "init", self.position, 0)


def shared_init_seed(seed: bytes) -> int:
    """Return the seed of the first model when all hospitals share it."""
    return stream_seed(seed, "shared-init")


def _digest(seed: bytes, purpose: str, *counters: int) -> bytes:
    name = purpose.encode()
    fields = b"".join(counter.to_bytes(8, "big") for counter in counters)
    # Length prefixes, so that different names never give the same bytes.
    prefix = len(seed).to_bytes(2, "big") + seed + len(name).to_bytes(2, "big") + name
    return hashlib.sha256(prefix + fields).digest()
