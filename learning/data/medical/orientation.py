"""One orientation for all volumes, whichever way a scanner or a program stored them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learning.data.extras import import_extra
from learning.data.medical.image_form import Floats


def to_canonical(
    values: NDArray[Any], affine: NDArray[Any]
) -> tuple[Floats, tuple[float, float, float]]:
    """Return a volume with its axes towards superior, posterior and left, and its spacing.

    That is how DICOM stores axial slices from the feet upwards. `affine` leads from indices to
    millimetres towards left, posterior and superior. Axes are swapped and flipped, never resampled.
    """
    orientations = import_extra("nibabel.orientations", "medical", "reading volumes")
    axes = orientations.io_orientation(affine)
    turned = orientations.apply_orientation(values, axes)
    sizes = np.empty(3)
    sizes[axes[:, 0].astype(int)] = np.linalg.norm(affine[:3, :3], axis=0)
    left, posterior, superior = (float(size) for size in sizes)
    canonical = np.ascontiguousarray(np.swapaxes(turned, 0, 2), dtype=np.float32)
    return canonical, (superior, posterior, left)
