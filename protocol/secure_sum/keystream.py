"""A seed expanded to pseudo-random bytes: AES-256 in counter mode, from block 0."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

# Small enough to stay in the processor's cache together with the numbers at work; measured.
CHUNK_BYTES = 1 << 17
_ZEROS = memoryview(bytes(CHUNK_BYTES))


def new_buffer() -> NDArray[np.uint8]:
    """Return room for one chunk; `update_into` insists on almost a block more."""
    return np.empty(CHUNK_BYTES + 15, dtype=np.uint8)


class Keystream:
    """Produces the bytes of one seed, in order."""

    def __init__(self, seed: bytes) -> None:
        # The counter may start at 0 because a seed is used for one vector only.
        self._encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()

    def fill(self, buffer: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
        """Write the next `size` bytes, at most a chunk, into the buffer; return that part."""
        self._encryptor.update_into(_ZEROS[:size], buffer.data)
        return buffer[:size]
