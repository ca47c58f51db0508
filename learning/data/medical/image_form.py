"""From decoded grey values to a network's input: intensity, geometry, scale.

A pure function of file and form, so that an image is the same at every hospital and at prediction.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.codebook import Images

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class DecodedImage:
    """A slice or a volume as it was measured."""

    values: Floats
    """(depth, height, width) or (depth, height, width, 3): rescaled grey values (Hounsfield units
    in a CT), or colours from 0 to 1."""

    spacing: tuple[float, float, float] | None
    """Millimetres between voxels, in the order of the axes; None if the file does not say."""

    displayed: Floats | None = None
    """The same from 0 (black) to 1 (white), as a viewer shows it; None: not known from the file."""

    inverted: bool = False
    """Small values are white (MONOCHROME1)."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[:3])

    @property
    def is_coloured(self) -> bool:
        return self.values.ndim == 4


def apply_form(image: DecodedImage, form: Images) -> Floats:
    """Return the features of an image, (channels, *size)."""
    grey = _intensities(image, form)
    ratios = [
        side / wanted if form.spacing is None else step / has
        for side, wanted, step, has in zip(
            image.shape[-len(form.size) :],
            form.size,
            form.spacing or form.size,
            (image.spacing or (1.0, 1.0, 1.0))[-len(form.size) :],
            strict=True,
        )
    ]
    if form.view == "slice":
        grey = grey[:, 0]
    for axis, (wanted, ratio) in enumerate(zip(form.size, ratios, strict=True), start=1):
        weights = _resampling(grey.shape[axis], wanted, ratio)
        grey = np.moveaxis(np.tensordot(grey, weights, axes=(axis, 1)), -1, axis)
    features = (np.clip(grey, 0, 1) - np.float32(form.centre)) / np.float32(form.scale)
    shaped = np.broadcast_to(features, (form.channels, *form.size))
    return np.ascontiguousarray(shaped, dtype=np.float32)


def _intensities(image: DecodedImage, form: Images) -> Floats:
    """Return values from 0 to 1: (channels, depth, height, width)."""
    if image.is_coloured:
        colours = np.moveaxis(image.values, -1, 0)
        if form.channels == 3:
            return colours
        # The luminance of ITU-R BT.601, as Pillow converts to grey.
        weights = np.array([0.299, 0.587, 0.114], dtype=np.float32)
        grey: Floats = np.tensordot(weights, colours, axes=1)[np.newaxis].astype(np.float32)
        return grey
    if form.intensity == "8-bit" and image.displayed is not None:
        return image.displayed[np.newaxis]
    values = image.values
    if form.intensity == "hu-window" and form.window:
        low, high = form.window
    elif form.percentiles:
        values = -values if image.inverted else values
        low, high = (float(edge) for edge in np.percentile(values, form.percentiles))
    else:
        low, high = 0.0, 255.0
    # An image of one value has no range; it becomes 0.
    span = high - low or 1.0
    scaled = (values - np.float32(low)) / np.float32(span)
    clipped: Floats = np.clip(scaled, 0, 1)[np.newaxis].astype(np.float32)
    return clipped


def _resampling(given: int, wanted: int, ratio: float) -> Floats:
    """Return the matrix (wanted, given) that resamples one axis linearly around its centre.

    `ratio` is the distance of two new samples, in old ones. A triangle as wide as that distance
    averages what is left out (as Pillow's bilinear filter does). Outside the image all is 0.
    """
    width = max(1.0, ratio)
    centres = (np.arange(wanted) - (wanted - 1) / 2) * ratio + (given - 1) / 2
    distance = np.abs(np.arange(given)[np.newaxis] - centres[:, np.newaxis]) / width
    weights = np.clip(1 - distance, 0, None)
    total = weights.sum(axis=1, keepdims=True)
    inside = (centres >= -0.5 - 1e-9) & (centres <= given - 0.5 + 1e-9)
    normalised = np.where(inside[:, np.newaxis], weights / np.where(total > 0, total, 1), 0)
    return normalised.astype(np.float32)
