"""Counter-based random streams: every draw of a run can be repeated alone and in any order.

A stream is named by a secret seed, a purpose and counters (a round, a leg, a hospital's position).
No generator is shared, so results do not depend on how rounds are grouped into legs, on the order
of requests, or on the engine.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

SEED_BYTES = 32
# Increased when a stream changes: results of different versions differ. 2: mini-batches are the
# examples with the smallest marks; before, they were drawn by NumPy's `choice`.
STREAMS_VERSION = 2

# SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter's step and the two multipliers.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


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
        batch: NDArray[np.int64] = draw_batches(
            self.seed, [(self.position, round_)], examples, size
        )[0]
        return batch

    def dropout_seed(self, round_: int) -> int:
        """Return the seed of a round's dropout."""
        return stream_seed(self.seed, "dropout", self.position, round_)

    def init_seed(self) -> int:
        """Return the seed of the model that this hospital initialises itself."""
        return stream_seed(self.seed, "init", self.position, 0)


def draw_batches(
    seed: bytes, names: Sequence[tuple[int, int]], examples: int, size: int
) -> NDArray[np.int64]:
    """Draw the mini-batches of several (position, round) pairs: an array (pairs, size).

    Every example gets a mark, and the batch is the examples with the smallest marks, in their
    order. The marks are SplitMix64, started at the first 8 bytes of the pair's digest: a bijection
    of a counter, so no two examples of a batch have the same mark.
    """
    keys = b"".join(_digest(seed, "batch", *name)[:8] for name in names)
    starts = np.frombuffer(keys, dtype=">u8").astype(np.uint64)
    marks = starts[:, None] + np.arange(1, examples + 1, dtype=np.uint64) * _STEP
    marks = (marks ^ (marks >> np.uint64(30))) * _MULTIPLIERS[0]
    marks = (marks ^ (marks >> np.uint64(27))) * _MULTIPLIERS[1]
    marks ^= marks >> np.uint64(31)
    smallest = np.argpartition(marks, size - 1, axis=1)[:, :size]
    order = np.argsort(np.take_along_axis(marks, smallest, axis=1), axis=1)
    batches: NDArray[np.int64] = np.take_along_axis(smallest, order, axis=1)
    return batches


def shared_init_seed(seed: bytes) -> int:
    """Return the seed of the first model when all hospitals share it."""
    return stream_seed(seed, "shared-init")


def _digest(seed: bytes, purpose: str, *counters: int) -> bytes:
    name = purpose.encode()
    fields = b"".join(counter.to_bytes(8, "big") for counter in counters)
    # Length prefixes, so that different names never give the same bytes.
    prefix = len(seed).to_bytes(2, "big") + seed + len(name).to_bytes(2, "big") + name
    return hashlib.sha256(prefix + fields).digest()
