"""Draw the mini-batches of many hospitals and rounds at once, equal to `TrainingStreams.batch`.

Creating a generator for every hospital and round takes longer than the training step. Its numbers
can be computed without it: Philox is a function of key and counter (Salmon et al., SC 2011), and
NumPy's `choice` without replacement is Floyd's algorithm followed by a shuffle. This module does
both for a whole table at once. It falls back to the generator where NumPy behaves differently, or
where a number would have to be drawn again (one in hundreds of millions).
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protocol.randomness import TrainingStreams

_LARGEST = 10_000  # above it NumPy may choose another algorithm
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
_WEYL = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B))

Words = NDArray[np.uint64]


def draw_batches(
    seed: bytes, positions: Sequence[int], rounds: range, examples: int, size: int
) -> NDArray[np.int64]:
    """Return the batches of hospitals at `positions`: an array (rounds, positions, size)."""
    names = [(position, round_) for round_ in rounds for position in positions]
    drawn = _drawn_together(seed, names, examples, size) if examples <= _LARGEST else None
    if drawn is None:
        drawn = np.stack([_drawn_alone(seed, *name, examples, size) for name in names])
    return drawn.reshape(len(rounds), len(positions), size)


def _drawn_alone(
    seed: bytes, position: int, round_: int, examples: int, size: int
) -> NDArray[np.int64]:
    return TrainingStreams(seed, position).batch(round_, examples, size)


def _drawn_together(
    seed: bytes, names: list[tuple[int, int]], examples: int, size: int
) -> NDArray[np.int64] | None:
    tape = _Tape(_keys(seed, names), numbers=2 * size)
    batches = _floyd(tape, examples, size)
    _shuffle(tape, batches)
    for row in np.flatnonzero(tape.unsure):
        batches[row] = _drawn_alone(seed, *names[row], examples, size)
    # Check one row against the generator: another version of NumPy may draw differently.
    if not np.array_equal(batches[0], _drawn_alone(seed, *names[0], examples, size)):
        return None
    return batches


def _keys(seed: bytes, names: list[tuple[int, int]]) -> tuple[Words, Words]:
    """Return the Philox keys of `protocol.randomness.stream(seed, "batch", position, round)`."""
    purpose = b"batch"
    prefix = hashlib.sha256(
        len(seed).to_bytes(2, "big") + seed + len(purpose).to_bytes(2, "big") + purpose
    )
    digests = []
    for position, round_ in names:
        digest = prefix.copy()
        digest.update(position.to_bytes(8, "big") + round_.to_bytes(8, "big"))
        digests.append(digest.digest()[:16])
    halves = np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64).reshape(-1, 2)
    return halves[:, 1], halves[:, 0]


class _Tape:
    """The 32-bit numbers of each row's generator, consumed column by column."""

    def __init__(self, keys: tuple[Words, Words], numbers: int) -> None:
        blocks = [_philox(keys, counter) for counter in range(1, numbers // 8 + 2)]
        words = np.stack([word for block in blocks for word in block], axis=1)
        # A 64-bit number is used as two, the low half first.
        halves = np.stack([words & _LOW, words >> _32], axis=2)
        self._numbers = halves.reshape(len(words), -1)
        self._column = 0
        self.unsure = np.zeros(len(words), dtype=bool)

    def below(self, bound: int) -> NDArray[np.int64]:
        """Draw from 0 … bound − 1 in every row (Lemire 2019), as NumPy does."""
        if bound == 1:
            return np.zeros(len(self.unsure), dtype=np.int64)
        product = self._numbers[:, self._column] * np.uint64(bound)
        self._column += 1
        # NumPy draws again where the low half is below 2³² mod bound, which is less than bound.
        self.unsure |= (product & _LOW) < np.uint64(bound)
        return (product >> _32).astype(np.int64)


def _floyd(tape: _Tape, examples: int, size: int) -> NDArray[np.int64]:
    """Choose `size` of the examples: a number drawn before is replaced by the current bound."""
    batches = np.full((len(tape.unsure), size), -1, dtype=np.int64)
    for place, bound in enumerate(range(examples - size, examples)):
        drawn = tape.below(bound + 1)
        again = (batches[:, :place] == drawn[:, None]).any(axis=1)
        batches[:, place] = np.where(again, bound, drawn)
    return batches


def _shuffle(tape: _Tape, batches: NDArray[np.int64]) -> None:
    rows = np.arange(len(batches))
    for place in range(batches.shape[1] - 1, 0, -1):
        other = tape.below(place + 1)
        moved = batches[rows, other]
        batches[rows, other] = batches[:, place]
        batches[:, place] = moved


def _philox(keys: tuple[Words, Words], counter: int) -> tuple[Words, ...]:
    """Return the four 64-bit words of Philox4x64-10 at this counter, for every key."""
    key0, key1 = keys
    zero = np.zeros_like(key0)
    x0, x1, x2, x3 = np.full_like(key0, counter), zero, zero, zero
    for _ in range(10):
        high0, low0 = _product(x0, _MULTIPLIERS[0])
        high1, low1 = _product(x2, _MULTIPLIERS[1])
        x0, x1, x2, x3 = high1 ^ x1 ^ key0, low1, high0 ^ x3 ^ key1, low0
        key0, key1 = key0 + _WEYL[0], key1 + _WEYL[1]
    return x0, x1, x2, x3


def _product(a: Words, b: np.uint64) -> tuple[Words, Words]:
    """Return the high and low 64 bits of a · b."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _32, b & _LOW, b >> _32
    low = a_low * b_low
    middle = a_high * b_low + (low >> _32)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _32) + (other >> _32), a * b
