"""What a file says about itself: the part of a DICOM or NIfTI header that examples are made of."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class ImageHeader:
    """One file. Texts are empty and numbers None where the file does not say."""

    kind: Literal["dicom", "nifti", "other"]
    """other: no image, such as a report, a DICOMDIR or a viewer's program."""

    shape: tuple[int, ...] = ()
    """(frames, rows, columns) of a DICOM file; the dimensions of a NIfTI file as it stores them."""

    patient: str = ""
    accession: str = ""
    study: str = ""
    series: str = ""
    instance: str = ""
    is_localizer: bool = False

    position: tuple[float, ...] | None = None
    """Of the first voxel: left, posterior, superior, in millimetres."""

    orientation: tuple[float, ...] | None = None
    """Directions of a row and of a column, three numbers each."""

    spacing: tuple[float, ...] | None = None
    """Millimetres between rows and between columns."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> "ImageHeader":
        lists = {name: tuple(v) for name, v in values.items() if isinstance(v, list)}
        return ImageHeader(**{**values, **lists})
