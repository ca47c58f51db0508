"""Images made with the real libraries, as scanners and archives write them."""

from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    CTImageStorage,
    ExplicitVRLittleEndian,
    SecondaryCaptureImageStorage,
    generate_uid,
)

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def dicom_image(pixels: NDArray[Any], **attributes: Any) -> Dataset:
    """Return a plain image: (rows, columns) grey, or (rows, columns, 3) colours."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = SecondaryCaptureImageStorage
    dataset.SOPInstanceUID = generate_uid()
    dataset.StudyInstanceUID = generate_uid()
    dataset.SeriesInstanceUID = generate_uid()
    dataset.PatientID = "P1"
    dataset.Modality = "DX"
    dataset.ImageType = ["ORIGINAL", "PRIMARY"]
    colour = pixels.ndim == 3 and pixels.shape[-1] == 3
    if pixels.ndim == 3 and not colour:
        dataset.NumberOfFrames = len(pixels)
    dataset.Rows, dataset.Columns = pixels.shape[:2] if colour else pixels.shape[-2:]
    dataset.SamplesPerPixel = 3 if colour else 1
    if colour:
        dataset.PlanarConfiguration = 0
    dataset.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
    dataset.BitsAllocated = 8 * pixels.dtype.itemsize
    dataset.BitsStored = dataset.BitsAllocated
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.PixelData = pixels.tobytes()
    for name, value in attributes.items():
        setattr(dataset, name, value)
    if "BitsStored" in attributes:
        dataset.HighBit = dataset.BitsStored - 1
    return dataset


def save(dataset: Dataset, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pydicom.dcmwrite(path, dataset, enforce_file_format=True)
    return path


def ct_slice(volume: NDArray[np.int16], index: int, **attributes: Any) -> Dataset:
    """Return one axial slice of a volume of Hounsfield units, (depth, rows, columns)."""
    stored = (volume[index].astype(np.int32) + 1024).astype(np.uint16)
    return dicom_image(
        stored,
        **{
            "SOPClassUID": CTImageStorage,
            "Modality": "CT",
            "ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"],
            "RescaleSlope": 1,
            "RescaleIntercept": -1024,
            "WindowCenter": 40,
            "WindowWidth": 400,
            "FrameOfReferenceUID": "1.2.3",
            "PixelSpacing": [0.5, 0.75],
            "ImageOrientationPatient": list(AXIAL),
            "ImagePositionPatient": [-10.0, -20.0, 100.0 + 2.5 * index],
            **attributes,
        },
    )


def save_series(
    folder: Path, volume: NDArray[np.int16], *, order: list[int] | None = None, **attributes: Any
) -> str:
    """Write a CT series with names in any order; return its number."""
    series, study = generate_uid(), generate_uid()
    places = order if order is not None else list(range(len(volume)))
    for number, index in enumerate(places):
        common = {"SeriesInstanceUID": series, "StudyInstanceUID": study, **attributes}
        save(ct_slice(volume, index, **common), folder / f"IM{number:04}")
    return str(series)


def hounsfield(shape: tuple[int, ...] = (5, 12, 10), seed: int = 0) -> NDArray[np.int16]:
    return np.random.default_rng(seed).integers(-1000, 1500, shape, dtype=np.int16)
