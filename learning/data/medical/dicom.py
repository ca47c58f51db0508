"""Decode DICOM files: headers, and grey values as they were measured and as they are displayed."""

import io
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError
from learning.data.extras import import_extra
from learning.data.medical.headers import ImageHeader
from learning.data.medical.image_form import DecodedImage, Floats
from learning.data.medical.orientation import to_canonical
from learning.extras import install

_EXTRA = "medical"
_MOST_PIXELS = 50_000_000  # of a frame; a mammogram has 20 million
MOST_VOXELS = 400_000_000  # of a volume
_TRANSFER_SYNTAX = re.compile(rb"\x02\x00\x10\x00UI..([0-9.]+)", re.DOTALL)
# Unpacked by pydicom as a whole, however much it is.
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_DICOMDIR = "1.2.840.10008.1.3.10"
# What else a PACS exports beside images: the beginnings of these storage classes.
_NO_IMAGES = {
    "1.2.840.10008.5.1.4.1.1.9.": "waveforms",
    "1.2.840.10008.5.1.4.1.1.11.": "presentation states",
    "1.2.840.10008.5.1.4.1.1.66": "raw data, registrations, fiducials",
    "1.2.840.10008.5.1.4.1.1.88.": "reports",
    "1.2.840.10008.5.1.4.1.1.104.": "documents",
    "1.2.840.10008.5.1.4.1.1.481.": "radiotherapy",
}
# The first tags of a file without the preamble, as old archives write it.
_FIRST_TAGS = {bytes([8, 0, element, 0]) for element in (0x00, 0x01, 0x05, 0x06, 0x08, 0x16, 0x18)}


def is_dicom(start: bytes) -> bool:
    """Recognise a file by its first bytes; suffixes say nothing in a PACS export."""
    return start[128:132] == b"DICM" or start[:4] in _FIRST_TAGS


def read_header(content: bytes, name: str) -> ImageHeader:
    """Read what comes before the pixels."""
    with _named(name):
        dataset = _parsed(content, pixels=False)
        if "Rows" not in dataset:
            if not _is_known_as_no_image(dataset):
                raise DataError(f"{name}: a DICOM file without an image; export it again")
            return ImageHeader("other")
        frames = int(dataset.get("NumberOfFrames", None) or 1)
        return ImageHeader(
            "dicom",
            shape=(frames, int(dataset.Rows), int(dataset.Columns)),
            patient=_text(dataset, "PatientID"),
            accession=_text(dataset, "AccessionNumber"),
            study=_text(dataset, "StudyInstanceUID"),
            series=_text(dataset, "SeriesInstanceUID"),
            instance=_text(dataset, "SOPInstanceUID"),
            is_localizer="LOCALIZER" in _texts(dataset, "ImageType"),
            position=_numbers(dataset, "ImagePositionPatient", 3),
            orientation=_numbers(dataset, "ImageOrientationPatient", 6),
            spacing=_spacing(dataset),
        )


def decode(content: bytes, name: str) -> DecodedImage:
    """Decode the pixels; the frames of a file are the slices of a volume."""
    with _named(name):
        dataset = _parsed(content, pixels=True)
        _check_size(dataset, name)
        _check_decoder(dataset, name)
        if int(dataset.SamplesPerPixel) == 1 and "PerFrameFunctionalGroupsSequence" in dataset:
            return _enhanced(dataset, name)
        return _classic(dataset)


def _classic(dataset: Any) -> DecodedImage:
    pixels = import_extra("pydicom.pixels", _EXTRA, "reading DICOM files")
    kind = str(dataset.PhotometricInterpretation)
    stored = pixels.pixel_array(dataset)
    between = dataset.get("SpacingBetweenSlices", None) or dataset.get("SliceThickness", None)
    in_plane = _spacing(dataset)
    spacing = (float(between or 1), in_plane[0], in_plane[1]) if in_plane else None
    if kind == "PALETTE COLOR":
        bits = int(dataset.RedPaletteColorLookupTableDescriptor[2])
        colours = pixels.apply_color_lut(stored, dataset)
        return DecodedImage(_framed(colours, 3) / np.float32(2**bits - 1), spacing)
    if int(dataset.SamplesPerPixel) == 3:
        full = np.float32(2 ** int(dataset.BitsStored) - 1)
        return DecodedImage(_framed(stored, 3) / full, spacing)
    values = pixels.apply_modality_lut(stored, dataset)
    displayed = np.clip(_displayed(values, dataset, pixels), 0, 1)
    inverted = kind == "MONOCHROME1"
    if inverted:
        displayed = 1 - displayed
    return DecodedImage(_framed(values), spacing, _framed(displayed), inverted=inverted)


def _displayed(values: NDArray[Any], dataset: Any, pixels: Any) -> NDArray[Any]:
    """Apply the first window or table that the file has for display (PS3.3, C.11.2)."""
    if dataset.get("VOILUTSequence", None):
        bits = int(dataset.VOILUTSequence[0].LUTDescriptor[2])
        shown: NDArray[Any] = pixels.apply_voi(values.astype(np.int64), dataset) / (2**bits - 1)
        return shown
    centre, width = (_numbers(dataset, name) for name in ("WindowCenter", "WindowWidth"))
    if not centre or not width or width[0] <= 0:
        low, high = _stored_range(dataset)
        slope = float(dataset.get("RescaleSlope", None) or 1)
        intercept = float(dataset.get("RescaleIntercept", None) or 0)
        return (values - (low * slope + intercept)) / ((high - low) * slope)
    function = _texts(dataset, "VOILUTFunction") or ["LINEAR"]
    if function[0] == "SIGMOID":
        result: NDArray[Any] = 1 / (1 + np.exp(-4 * (values - centre[0]) / width[0]))
        return result
    if function[0] == "LINEAR_EXACT":
        return (values - centre[0]) / width[0] + 0.5
    return (values - (centre[0] - 0.5)) / max(width[0] - 1, 1e-6) + 0.5


def _stored_range(dataset: Any) -> tuple[float, float]:
    if dataset.get("ModalityLUTSequence", None):
        return 0.0, 2.0 ** int(dataset.ModalityLUTSequence[0].LUTDescriptor[2]) - 1
    bits = int(dataset.BitsStored)
    if int(dataset.PixelRepresentation):
        return -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1
    return 0.0, 2.0**bits - 1


def _enhanced(dataset: Any, name: str) -> DecodedImage:
    """Decode a file whose frames have positions, scales and windows of their own."""
    highdicom = import_extra("highdicom", _EXTRA, "reading multi-frame DICOM files")
    groups = [
        *dataset.get("SharedFunctionalGroupsSequence", ()),
        *dataset.PerFrameFunctionalGroupsSequence,
    ]
    if not any("PlanePositionSequence" in group for group in groups):
        return _classic(dataset)
    image = highdicom.Image.from_dataset(dataset, copy=False)
    if image.get_volume_geometry(allow_duplicate_positions=False) is None:
        raise DataError(
            f"{name}: its frames are not evenly spaced, or two are at one place; export the whole "
            "series again, each acquisition as a file of its own"
        )
    settings = {"dtype": np.float32, "apply_presentation_lut": False}
    measured = image.get_volume(**settings)
    values, spacing = to_canonical(measured.array, measured.affine)
    inverted = str(dataset.PhotometricInterpretation) == "MONOCHROME1"
    displayed = None
    if any("FrameVOILUTSequence" in group for group in groups):
        shown = image.get_volume(**settings, apply_voi_transform=True)
        displayed, _ = to_canonical(shown.array, measured.affine)
        displayed = 1 - displayed if inverted else displayed
    return DecodedImage(values, spacing, displayed, inverted=inverted)


def _parsed(content: bytes, *, pixels: bool) -> Any:
    pydicom = import_extra("pydicom", _EXTRA, "reading DICOM files")
    # What breaks the standard's letter is common, and warnings would quote it.
    pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
    found = _TRANSFER_SYNTAX.search(content[:4096])
    if found and found[1] == _DEFLATED:
        raise DataError("a deflated file; export it uncompressed")
    dataset = pydicom.dcmread(io.BytesIO(content), stop_before_pixels=not pixels, force=True)
    if "TransferSyntaxUID" not in dataset.file_meta:
        implicit, _ = dataset.original_encoding
        dataset.file_meta.TransferSyntaxUID = f"1.2.840.10008.1.2{'' if implicit else '.1'}"
    return dataset


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Turn whatever a damaged file causes into a DataError with the file's name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DataError as error:
        raise type(error)(
            *(p if p.startswith(name) else f"{name}: {p}" for p in error.problems)
        ) from error
    except Exception as error:
        # The decoders raise many kinds of errors. Their texts may quote the file.
        raise DataError(f"{name}: truncated or damaged; export it again or remove it") from error


def _check_size(dataset: Any, name: str) -> None:
    frames = int(dataset.get("NumberOfFrames", None) or 1)
    pixels = int(dataset.Rows) * int(dataset.Columns)
    if pixels > _MOST_PIXELS or frames * pixels > MOST_VOXELS or min(frames, pixels) < 1:
        raise DataError(
            f"{name}: {frames} × {dataset.Rows} × {dataset.Columns} pixels; at most "
            f"{_MOST_PIXELS:,} a frame and {MOST_VOXELS:,} a file are read"
        )


def _check_decoder(dataset: Any, name: str) -> None:
    uids = import_extra("pydicom.uid", _EXTRA, "reading DICOM files")
    pixels = import_extra("pydicom.pixels", _EXTRA, "reading DICOM files")
    syntax = uids.UID(dataset.file_meta.TransferSyntaxUID)
    if not syntax.is_compressed:
        return
    title = "an unknown compression" if syntax.name == syntax else syntax.name
    try:
        available = pixels.get_decoder(syntax).is_available
    except NotImplementedError:
        raise DataError(
            f"{name}: compressed as {title} ({syntax}), which is not read; export it uncompressed"
        ) from None
    if not available:
        raise DataError(
            f"{name}: compressed as {title}, without a decoder here: {install(_EXTRA)}, or export "
            "it uncompressed"
        )


def _is_known_as_no_image(dataset: Any) -> bool:
    meta = getattr(dataset, "file_meta", None)
    kinds = _text(dataset, "SOPClassUID"), str(getattr(meta, "MediaStorageSOPClassUID", ""))
    return any(kind == _DICOMDIR or kind.startswith(tuple(_NO_IMAGES)) for kind in kinds)


def _framed(values: NDArray[Any], samples: int = 1) -> Floats:
    """Return (frames, rows, columns) or (frames, rows, columns, 3)."""
    dimensions = 3 if samples == 1 else 4
    framed = values if values.ndim == dimensions else values[np.newaxis]
    return framed.astype(np.float32)


def _spacing(dataset: Any) -> tuple[float, ...] | None:
    for name in ("PixelSpacing", "ImagerPixelSpacing"):
        found = _numbers(dataset, name, 2)
        if found and min(found) > 0:
            return found
    return None


def _numbers(dataset: Any, name: str, count: int | None = None) -> tuple[float, ...] | None:
    value = dataset.get(name, None)
    if value is None or value == "":
        return None
    parts = (
        value
        if not isinstance(value, str | int | float) and hasattr(value, "__iter__")
        else [value]
    )
    numbers = tuple(float(part) for part in parts)
    if (count and len(numbers) != count) or not all(map(math.isfinite, numbers)):
        return None
    return numbers


def _text(dataset: Any, name: str) -> str:
    return str(dataset.get(name, None) or "").strip()


def _texts(dataset: Any, name: str) -> list[str]:
    value = dataset.get(name, None) or ()
    return [str(part).upper() for part in ([value] if isinstance(value, str) else value)]
