"""Find copies among examples: equal ones, and images that are almost equal."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIDE = 32
_ALIKE = 0.99
_BLOCK = 1_000  # rows of the correlation matrix at a time


def exact_copies(features: NDArray[np.float32]) -> int:
    """Return how many examples are equal to an earlier one."""
    return len(features) - len({row.tobytes() for row in features})


def near_copies(images: NDArray[np.float32]) -> int:
    """Return how many images are almost equal, but not equal, to an earlier one.

    That is a correlation above .99 of the images reduced to 32 × 32. Of a volume, the middle slice
    is compared.
    """
    _, first = np.unique([hash(image.tobytes()) for image in images], return_index=True)
    small = _thumbnails(images[np.sort(first)])
    small -= small.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(small, axis=1, keepdims=True)
    small = np.divide(small, norms, out=np.zeros_like(small), where=norms > 0)
    found = 0
    for start in range(0, len(small), _BLOCK):
        alike = small[start : start + _BLOCK] @ small[: start + _BLOCK].T > _ALIKE
        earlier = np.arange(alike.shape[1]) < np.arange(start, start + len(alike))[:, np.newaxis]
        found += int((alike & earlier).any(axis=1).sum())
    return found


def _thumbnails(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (n, values) of images (n, channels, [depth,] height, width), by block means."""
    if images.ndim == 5:
        images = images[:, :, images.shape[2] // 2]
    small: NDArray[Any] = images
    for axis in (2, 3):
        length = small.shape[axis]
        if length > _SIDE:
            starts = np.arange(_SIDE) * length // _SIDE
            counts = np.diff(np.append(starts, length))
            shape = [-1 if at == axis else 1 for at in range(4)]
            small = np.add.reduceat(small, starts, axis=axis) / counts.reshape(shape)
    return small.reshape(len(small), -1).astype(np.float32)
