"""Gaussian noise from a cryptographic generator: AES-256 in counter mode, then Box–Muller.

Statistical generators (NumPy's, torch's) can be reconstructed from their output; whoever does so
subtracts the noise. The key comes from the operating system; tests and the lab inject it.
"""

import hashlib
import hmac
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

KEY_BYTES = 32
# Numbers per pass of Box–Muller: small enough for the processor's cache.
_CHUNK = 1 << 16
_MANTISSA = (1 << 53) - 1
_GRID_BITS = 10

Tensors = dict[str, Tensor]


class NoiseSource:
    """A secret key, from which every release draws its own stream of noise.

    The numbers of one stream must never be added to two different values: their difference would
    hold no noise. Name each stream after the release, for example ("round", 17), and use a new
    source where the same name could come back with other data.
    """

    def __init__(self, key: bytes | None = None) -> None:
        """Use the given key, or, as in every real experiment, a new one from the system."""
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"key must have {KEY_BYTES} bytes, got {len(key)}")
        self._key = os.urandom(KEY_BYTES) if key is None else key

    def source(self, purpose: str, *counters: int) -> "NoiseSource":
        """Derive another source, for example one for each simulated hospital."""
        return NoiseSource(self._derived(purpose, counters))

    def stream(self, purpose: str, *counters: int) -> "NoiseStream":
        """Return the stream with this name; equal names give equal numbers."""
        return NoiseStream(self._derived(purpose, counters))

    def _derived(self, purpose: str, counters: Sequence[int]) -> bytes:
        # A fixed number of bytes for each counter, after a purpose of known length: no two names
        # give the same message.
        name = purpose.encode()
        message = len(name).to_bytes(2, "big") + name
        message += b"".join(counter.to_bytes(8, "big") for counter in counters)
        return hmac.digest(self._key, message, hashlib.sha256)


class NoiseStream:
    """The numbers of one release, in order."""

    def __init__(self, key: bytes) -> None:
        # The counter may start at 0 because every stream has a key of its own.
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> NDArray[np.int64]:
        """Return the next `count` 64-bit words."""
        return np.frombuffer(self._encryptor.update(bytes(8 * count)), dtype=np.int64)

    def uniform(self, count: int) -> Tensor:
        """Return numbers in (0, 1] with 53 random bits each."""
        return _uniform(torch.tensor(self.words(count)))

    def normal(self, count: int) -> Tensor:
        """Return standard normal numbers in float64."""
        return normal_rows([self], count)[0]

    def normal_like(self, tensors: Mapping[str, Tensor]) -> Tensors:
        """Return standard normal tensors in float64 with the shapes of `tensors`."""
        numbers = self.normal(sum(tensor.numel() for tensor in tensors.values()))
        return _shaped(numbers, tensors)


def normal_rows(streams: Sequence[NoiseStream], count: int) -> Tensor:
    """Return `count` standard normal numbers of each stream, as the rows of one tensor."""
    pairs = (count + 1) // 2
    numbers = torch.empty((len(streams), 2 * pairs), dtype=torch.float64)
    columns = max(1, _CHUNK // (2 * len(streams)))
    for first in range(0, pairs, columns):
        part = min(columns, pairs - first)
        words = np.stack([stream.words(2 * part) for stream in streams])
        _box_muller(torch.from_numpy(words), out=numbers[:, 2 * first : 2 * (first + part)])
    return numbers[:, :count]


def noised(values: Mapping[str, Tensor], deviation: float, noise: Mapping[str, Tensor]) -> Tensors:
    """Add standard normal `noise` times `deviation`, rounded to 2⁻¹⁰ of the deviation.

    Rounding is post-processing. It removes the low bits, in which floating-point arithmetic leaves
    traces of the value without noise (Mironov 2012). The grid is a power of two: a number on it is
    exact in float32.
    """
    if deviation == 0:
        return dict(values)
    grid = 2.0 ** (math.floor(math.log2(deviation)) - _GRID_BITS)
    return {
        name: (value.double() + deviation * noise[name].to(value.device))
        .div_(grid)
        .round_()
        .mul_(grid)
        for name, value in values.items()
    }


def _box_muller(words: Tensor, *, out: Tensor) -> None:
    """Turn each pair of words in a row, a radius and an angle, into two normal numbers."""
    radius = _uniform(words[:, ::2]).log_().mul_(-2).sqrt_()
    angle = _uniform(words[:, 1::2]).mul_(2 * math.pi)
    out[:, ::2] = angle.cos().mul_(radius)
    out[:, 1::2] = angle.sin_().mul_(radius)


def _uniform(words: Tensor) -> Tensor:
    return (words & _MANTISSA).double().add_(1).mul_(2.0**-53)


def _shaped(numbers: Tensor, like: Mapping[str, Tensor]) -> Tensors:
    parts = torch.split(numbers, [tensor.numel() for tensor in like.values()])
    return {
        name: part.view(tensor.shape)
        for part, (name, tensor) in zip(parts, like.items(), strict=True)
    }
