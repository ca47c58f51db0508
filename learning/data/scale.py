"""Scale features: tables by statistics of the training pool, pixels by constants."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def standardise(columns: NDArray[np.float64], pool: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return columns with mean 0 and standard deviation 1 over the rows of the training pool.

    A column that is constant in the pool is only centred.
    """
    mean, deviation = columns[pool].mean(axis=0), columns[pool].std(axis=0)
    # The deviation of a constant like 0.1 is about 1e-17 from rounding, not 0.
    constant = np.ptp(columns[pool], axis=0) == 0
    scaled: NDArray[np.float64] = (columns - mean) / np.where(constant, 1.0, deviation)
    return scaled.astype(np.float32)


def scale_pixels(
    pixels: NDArray[np.uint8], mean: Sequence[float], deviation: Sequence[float]
) -> NDArray[np.float32]:
    """Return (value/255 − mean)/deviation for pixels of shape (n, channels, height, width)."""
    per_channel = (1, -1, 1, 1)
    scaled = pixels.astype(np.float32)
    # In place: the largest sets take gigabytes, and each temporary as much.
    scaled -= 255 * np.asarray(mean, dtype=np.float32).reshape(per_channel)
    scaled /= 255 * np.asarray(deviation, dtype=np.float32).reshape(per_channel)
    return scaled
