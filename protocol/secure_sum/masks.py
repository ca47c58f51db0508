"""Masks: a vector plus and minus keystreams, modulo the size of its integers."""

from collections.abc import Mapping, Sequence

from .keystream import CHUNK_BYTES, Keystream, new_buffer
from .vector import Vector


def add_masks(vector: Vector, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Add the masks of the seeds `plus` to a vector in place, and subtract those of `minus`.

    A mask's keystream runs through the vector's bytes: first its numbers, then its extras.
    """
    added, subtracted = list(map(Keystream, plus)), list(map(Keystream, minus))
    buffer = new_buffer()
    for section in (vector.numbers, vector.extras):
        step = CHUNK_BYTES // section.itemsize
        for start in range(0, section.size, step):
            # All masks of one chunk before the next: it stays in the processor's cache.
            chunk = section[start : start + step]
            for stream in added:
                chunk += stream.fill(buffer, chunk.nbytes).view(chunk.dtype)
            for stream in subtracted:
                chunk -= stream.fill(buffer, chunk.nbytes).view(chunk.dtype)


def pair_masks(name: str, seeds: Mapping[str, bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the seeds of the masks that `name` adds, and of those it subtracts.

    `seeds` holds the pair seeds by the other member. Of two members, the one whose name comes first
    adds their mask and the other subtracts it, so that it cancels in the sum.
    """
    plus = [seed for other, seed in seeds.items() if name < other]
    minus = [seed for other, seed in seeds.items() if name > other]
    return plus, minus
