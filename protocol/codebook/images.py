"""The images of a codebook: geometry and grey values."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from .parts import Number, Part, Positive

_MOST_PIXELS = 64_000_000
_Side = Annotated[int, Field(ge=1, le=4096)]
_Pair = Annotated[tuple[Number, Number], Field(strict=False)]


class Images(Part):
    """Images get one `size` and grey values from 0 to 1, of which (value − centre) / scale is left.

    `size` is height and width of a slice; depth, height and width of a volume. `spacing`, in
    millimetres and in the same order, resamples before the image is cropped or padded to `size`;
    without it images are stretched to `size`. `intensity` says what is 0 and what is 1:
    `hu-window` the ends of `window` in Hounsfield units, `percentiles` these of each image, and
    `8-bit` 0 and 255.
    """

    view: Literal["slice", "volume"]
    size: Annotated[tuple[_Side, ...], Field(min_length=2, max_length=3, strict=False)]
    channels: Literal[1, 3] = 1
    intensity: Literal["8-bit", "hu-window", "percentiles"] = "8-bit"
    window: _Pair | None = None
    percentiles: _Pair | None = None
    spacing: Annotated[tuple[Positive, ...], Field(strict=False)] | None = None
    centre: Number = 0.5
    scale: Positive = 0.25

    @model_validator(mode="after")
    def _is_consistent(self) -> "Images":
        sides = 2 if self.view == "slice" else 3
        for key, value in (("size", self.size), ("spacing", self.spacing)):
            if value is not None and len(value) != sides:
                raise ValueError(f"{key} of a {self.view} has {sides} numbers, got {len(value)}")
        pixels = math.prod(self.shape)
        if pixels > _MOST_PIXELS:
            raise ValueError(f"an image has {pixels} values, more than {_MOST_PIXELS}")
        for key, pair, intensity in (
            ("window", self.window, "hu-window"),
            ("percentiles", self.percentiles, "percentiles"),
        ):
            if (pair is None) == (self.intensity == intensity):
                raise ValueError(f'{key} is given exactly if intensity = "{intensity}"')
            if pair is not None and not pair[0] < pair[1]:
                raise ValueError(f"{key} must rise, got {pair[0]} to {pair[1]}")
        if self.percentiles and not 0 <= self.percentiles[0] < self.percentiles[1] <= 100:
            raise ValueError("percentiles are between 0 and 100")
        if self.channels == 3 and (self.intensity != "8-bit" or self.view != "slice"):
            raise ValueError("3 channels are for 8-bit slices")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, *self.size)
