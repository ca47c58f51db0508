"""The tag of a vector: ⟨r, vector⟩ modulo 2⁶¹−1, where only members know r.

Tags add up like vectors: the sum of the members' tags is the tag of the sum. Without r, nobody can
give another sum the right tag, except by chance of 2⁻⁶⁰. A tag travels inside its vector, as
four limbs of 16 bits, whose sums do not overflow.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .keystream import Keystream, new_buffer
from .secure_leg import SecureSumError
from .vector import TAG_LIMBS, Vector

PRIME = 2**61 - 1
_LIMB_BITS = 16
# Products of limbs, added up over so many numbers, stay below 2⁵³: exact in floating point.
_AT_ONCE = 1 << 14


def add_tag(vector: Vector, seed: bytes) -> None:
    """Write a member's tag into its vector's limbs."""
    value = inner_product(vector, seed)
    for place in range(TAG_LIMBS):
        vector.limbs[place] = value >> (_LIMB_BITS * place) & 0xFFFF


def check_tag(total: Vector, seed: bytes) -> None:
    """Refuse a sum whose tag is not the sum of its members' tags."""
    value = sum(int(limb) << (_LIMB_BITS * place) for place, limb in enumerate(total.limbs))
    if value % PRIME != inner_product(total, seed):
        raise SecureSumError("the tag is wrong: this is not a sum that members made")


def inner_product(vector: Vector, seed: bytes) -> int:
    """Return ⟨r, vector without its limbs⟩ mod 2⁶¹−1; r is the seed's keystream in 64-bit words."""
    stream, buffer = Keystream(seed), new_buffer()
    total = 0
    for section in (vector.numbers, vector.extras[:-TAG_LIMBS]):
        signed = section.view(f"<i{section.itemsize}")
        for start in range(0, section.size, _AT_ONCE):
            part = np.ascontiguousarray(signed[start : start + _AT_ONCE], dtype=np.int64)
            words = stream.fill(buffer, part.nbytes)
            # One matrix product gives the sums of all products of a limb of r and one of x.
            products = _limbs(words.view("<u2")).T @ _signed_limbs(part)
            for i in range(4):
                for j in range(4):
                    total += int(products[i, j]) << (_LIMB_BITS * (i + j))
    return total % PRIME


def _limbs(words: NDArray[Any]) -> NDArray[np.float64]:
    return words.reshape(-1, 4).astype(np.float64)


def _signed_limbs(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Split numbers so that x = Σ limb · 2^16k; the highest limb carries the sign."""
    limbs = _limbs(numbers.view("<u2"))
    limbs[:, 3] = numbers.view("<i2").reshape(-1, 4)[:, 3]
    return limbs
