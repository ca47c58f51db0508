"""Turn files into items, each one example: a file, or the slices of a series in their order."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError
from learning.data.medical.headers import ImageHeader
from learning.data.medical.scan import ScannedFile
from protocol.codebook import Images

_SAME_DIRECTION = 1e-3
_SAME_SPACING = 0.02  # relative: scanners round positions
_SAME_PLACE = 0.01  # millimetres
_EXPORT = "export the whole series again"


@dataclass(frozen=True)
class Item:
    """The files of one example, in the order of their places."""

    files: tuple[ScannedFile, ...]

    @property
    def name(self) -> str:
        """How messages call it."""
        first = self.files[0]
        if len(self.files) == 1:
            return first.name
        return f"series {first.header.series} ({len(self.files)} files, {first.name} …)"

    @property
    def header(self) -> ImageHeader:
        return self.files[0].header

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that its files announce."""
        shape = self.header.shape
        return (len(self.files), *shape[1:]) if len(self.files) > 1 else shape

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(file.digest for file in self.files)


def items_of(images: Sequence[ScannedFile], form: Images) -> list[Item]:
    """Group the files: each is a slice, or the slices of a series are a volume."""
    groups: dict[tuple[str, str], list[ScannedFile]] = defaultdict(list)
    for file in images:
        header = file.header
        is_part = header.kind == "dicom" and header.shape[0] == 1 and header.series
        if form.view == "volume" and is_part:
            groups["series", header.series].append(file)
        else:
            groups["file", file.name].append(file)
    return [Item(tuple(_by_place(files))) for files in groups.values()]


def check_item(item: Item, form: Images) -> None:
    """Raise a DataError if an item can't be an example of this form, as far as headers tell."""
    sides = [side for side in item.shape if side > 1]
    if form.view == "slice" and len(sides) > 2:
        raise DataError(
            f"{item.name}: a volume of {item.shape} where the codebook has slices of "
            f"{tuple(form.size)}; export slices, or agree on volumes"
        )
    if form.view == "volume" and len(sides) != 3:
        advice = "split it into volumes" if len(sides) > 3 else "export the whole series"
        raise DataError(
            f"{item.name}: {len(item.shape)} dimensions, {item.shape}, where the codebook has "
            f"volumes of {tuple(form.size)}; {advice}, or leave it out"
        )
    if len(item.files) > 1:
        _check_series(item)


def series_affine(item: Item) -> NDArray[np.float64]:
    """Return the map from (slice, row, column) to left, posterior, superior in millimetres."""
    headers = [file.header for file in item.files]
    places = np.array([header.position for header in headers])
    first = headers[0]
    if first.orientation is None or first.spacing is None:
        raise DataError(f"{item.name}: no orientation or spacing; {_EXPORT}")
    affine = np.eye(4)
    affine[:3, 0] = (places[-1] - places[0]) / (len(places) - 1)
    affine[:3, 1] = np.array(first.orientation[3:]) * first.spacing[0]
    affine[:3, 2] = np.array(first.orientation[:3]) * first.spacing[1]
    affine[:3, 3] = places[0]
    return affine


def _check_series(item: Item) -> None:
    headers = [file.header for file in item.files]
    if any(None in (h.position, h.orientation, h.spacing) for h in headers):
        raise DataError(
            f"{item.name}: slices without position, orientation or spacing; {_EXPORT}, with all "
            "of its headers"
        )
    for what, values, tolerance in (
        ("sizes", [header.shape for header in headers], 0.0),
        ("orientations", [header.orientation for header in headers], _SAME_DIRECTION),
        ("pixel spacings", [header.spacing for header in headers], _SAME_DIRECTION),
    ):
        if np.ptp(np.array(values, dtype=float), axis=0).max() > tolerance:
            raise DataError(
                f"{item.name}: slices of mixed {what}; export the {what} as series of their own"
            )
    steps = np.diff([_height(header) for header in headers])
    usual = float(np.median(steps))
    if steps.min() < _SAME_PLACE:
        raise DataError(
            f"{item.name}: two slices at one place; export each acquisition (phase, echo) as a "
            "series of its own"
        )
    ratios = steps / usual
    if np.abs(ratios - 1).max() <= _SAME_SPACING:
        return
    if np.abs(ratios - np.round(ratios)).max() <= 2 * _SAME_SPACING:
        missing = int(np.round(ratios).sum()) - len(steps)
        after = item.files[int(np.argmax(ratios))].name
        raise DataError(
            f"{item.name}: {missing} slices missing, the first after {after}; {_EXPORT}"
        )
    raise DataError(
        f"{item.name}: mixed distances between slices, {steps.min():.2f} to {steps.max():.2f} mm; "
        f"{_EXPORT}, with one spacing"
    )


def _by_place(files: list[ScannedFile]) -> list[ScannedFile]:
    if all(file.header.position and file.header.orientation for file in files):
        return sorted(files, key=lambda file: (_height(file.header), file.name))
    return files


def _height(header: ImageHeader) -> float:
    """Return how far a slice lies along the normal of its plane."""
    along_row, along_column = np.array(header.orientation).reshape(2, 3)
    return float(np.cross(along_row, along_column) @ np.array(header.position))
