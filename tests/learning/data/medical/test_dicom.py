"""DICOM pixels come out as they were measured and as a viewer shows them."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highdicom
import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    JPEG2000Lossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    MRImageStorage,
    RLELossless,
)

from learning.data import DataError
from learning.data.medical.dicom import decode, is_dicom, read_header
from tests.learning.data.medical.made_images import ct_slice, dicom_image, hounsfield

Refusal = Callable[[Callable[[], object]], str]


def content(dataset: Dataset) -> bytes:
    buffer = io.BytesIO()
    pydicom.dcmwrite(buffer, dataset, enforce_file_format=True)
    return buffer.getvalue()


def jpeg_lossless(dataset: Dataset, tmp_path: Path) -> bytes:
    """Compress with GDCM, as many archives do."""
    import gdcm

    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(content(dataset))
    reader = gdcm.ImageReader()
    reader.SetFileName(str(plain))
    assert reader.Read()
    change = gdcm.ImageChangeTransferSyntax()
    change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.JPEGLosslessProcess14_1))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer = gdcm.ImageWriter()
    writer.SetFileName(str(packed))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()
    return packed.read_bytes()


def jpeg_2000(dataset: Dataset, _tmp_path: Path) -> bytes:
    from PIL import Image
    from pydicom.encaps import encapsulate

    buffer = io.BytesIO()
    pixels = np.frombuffer(dataset.PixelData, np.uint16).reshape(dataset.Rows, dataset.Columns)
    Image.fromarray(pixels).save(buffer, "JPEG2000", irreversible=False, no_jp2=True)
    dataset.PixelData = encapsulate([buffer.getvalue()])
    dataset.file_meta.TransferSyntaxUID = JPEG2000Lossless
    return content(dataset)


def compressed(syntax: str) -> Callable[[Dataset, Path], bytes]:
    def compress(dataset: Dataset, _tmp_path: Path) -> bytes:
        dataset.compress(syntax, generate_instance_uid=False)
        return content(dataset)

    return compress


PACKERS = {
    "uncompressed": lambda dataset, _tmp_path: content(dataset),
    JPEGLosslessSV1.name: jpeg_lossless,
    JPEG2000Lossless.name: jpeg_2000,
    JPEGLSLossless.name: compressed(JPEGLSLossless),
    RLELossless.name: compressed(RLELossless),
}


@pytest.mark.parametrize("syntax", PACKERS)
def test_every_compression_gives_the_same_hounsfield_units(syntax: str, tmp_path: Path) -> None:
    volume = hounsfield((1, 24, 20))
    packed = PACKERS[syntax](ct_slice(volume, 0), tmp_path)
    found = pydicom.dcmread(io.BytesIO(packed)).file_meta.TransferSyntaxUID
    assert syntax == "uncompressed" or found.name == syntax

    image = decode(packed, "a file")

    np.testing.assert_array_equal(image.values, volume.astype(np.float32))
    assert image.spacing is not None
    assert image.spacing[1:] == (0.5, 0.75)


WINDOWS: dict[str, dict[str, Any]] = {
    "linear": {},
    "exact": {"VOILUTFunction": "LINEAR_EXACT"},
    "sigmoid": {"VOILUTFunction": "SIGMOID"},
    "first of two": {"WindowCenter": [40, -600], "WindowWidth": [80, 1500]},
}


@pytest.mark.parametrize("kind", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_display_is_that_of_another_library(window: str, kind: str) -> None:
    dataset = ct_slice(hounsfield((1, 24, 20)), 0, **WINDOWS[window])
    dataset.PhotometricInterpretation = kind
    expected = highdicom.Image.from_dataset(dataset).get_frame(
        1, apply_voi_transform=True, apply_presentation_lut=True
    )

    image = decode(content(dataset), "a file")

    assert image.displayed is not None
    np.testing.assert_allclose(image.displayed[0], expected, atol=1e-6)
    assert image.inverted == (kind == "MONOCHROME1")


def test_without_a_window_the_whole_range_of_bits_is_displayed() -> None:
    pixels = np.array([[0, 1023], [2048, 4095]], dtype=np.uint16)
    image = decode(content(dicom_image(pixels, BitsStored=12)), "a file")
    assert image.displayed is not None
    np.testing.assert_allclose(image.displayed[0], pixels / 4095, atol=1e-6)


def test_palettes_and_colours_become_three_channels() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    image = decode(content(dicom_image(colours)), "a file")
    np.testing.assert_allclose(image.values[0], colours / 255, atol=1e-6)

    indices = np.arange(4, dtype=np.uint8).reshape(2, 2)
    palette = dicom_image(indices, PhotometricInterpretation="PALETTE COLOR")
    tables = {"Red": [0, 65535, 0, 257], "Green": [0, 0, 65535, 514], "Blue": [0, 0, 0, 771]}
    for name, table in tables.items():
        setattr(palette, f"{name}PaletteColorLookupTableDescriptor", [4, 0, 16])
        data = np.array(table, dtype=np.uint16).tobytes()
        setattr(palette, f"{name}PaletteColorLookupTableData", data)
    image = decode(content(palette), "a file")
    expected = np.array([*tables.values()]).T.reshape(2, 2, 3) / 65535
    np.testing.assert_allclose(image.values[0], expected, atol=1e-6)


def test_frames_of_a_plain_file_are_slices() -> None:
    frames = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    packed = content(dicom_image(frames, PixelSpacing=[1, 2], SpacingBetweenSlices=3))
    assert read_header(packed, "a file").shape == (3, 4, 5)
    image = decode(packed, "a file")
    np.testing.assert_array_equal(image.values, frames)
    assert image.spacing == (3.0, 1.0, 2.0)


def enhanced(volume: np.ndarray[Any, Any], heights: list[float]) -> Dataset:
    """Return an enhanced MR file whose frames have places and scales of their own."""
    dataset = dicom_image(volume.astype(np.uint16), SOPClassUID="1.2.840.10008.5.1.4.1.1.4.1")
    dataset.Modality = "MR"
    dataset.FrameOfReferenceUID = "1.2.3"
    shared, measures, orientation = Dataset(), Dataset(), Dataset()
    measures.PixelSpacing, measures.SliceThickness = [0.5, 0.75], 2.0
    orientation.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    shared.PixelMeasuresSequence, shared.PlaneOrientationSequence = [measures], [orientation]
    dataset.SharedFunctionalGroupsSequence = [shared]
    frames = []
    for number, height in enumerate(heights):
        frame, place, scale = Dataset(), Dataset(), Dataset()
        place.ImagePositionPatient = [0.0, 0.0, height]
        scale.RescaleSlope, scale.RescaleIntercept, scale.RescaleType = number + 1, -number, "US"
        frame.PlanePositionSequence, frame.PixelValueTransformationSequence = [place], [scale]
        frames.append(frame)
    dataset.PerFrameFunctionalGroupsSequence = frames
    return dataset


def test_frames_with_places_and_scales_of_their_own_are_a_volume() -> None:
    stored = np.random.default_rng(0).integers(0, 1000, (4, 6, 5))
    heights = [4.0, 0.0, 6.0, 2.0]
    image = decode(content(enhanced(stored, heights)), "a file")

    scaled = [stored[n] * (n + 1) - n for n in range(4)]
    expected = np.stack([scaled[n] for n in np.argsort(heights)])
    np.testing.assert_array_equal(image.values, expected)
    assert image.spacing == (2.0, 0.5, 0.75)


def test_a_multi_frame_file_with_a_missing_frame_is_named(refusal: Refusal) -> None:
    packed = content(enhanced(np.ones((4, 6, 5)), [0.0, 2.0, 6.0, 8.0]))
    message = refusal(lambda: decode(packed, "folder/IM1"))
    assert message.startswith("folder/IM1: its frames are not evenly spaced")
    assert "export the whole series again" in message


def test_a_file_without_the_preamble_is_recognised() -> None:
    volume = hounsfield((1, 8, 8))
    dataset = ct_slice(volume, 0)
    whole = content(dataset)
    assert is_dicom(whole)
    dataset.file_meta = FileMetaDataset()
    buffer = io.BytesIO()
    pydicom.dcmwrite(buffer, dataset, implicit_vr=True, little_endian=True)
    assert buffer.getvalue()[128:132] != b"DICM"
    assert is_dicom(buffer.getvalue())
    np.testing.assert_array_equal(decode(buffer.getvalue(), "a file").values, volume)


def test_a_compression_without_a_decoder_is_named_with_the_extra(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pydicom.pixels import get_decoder

    packed = jpeg_lossless(ct_slice(hounsfield((1, 8, 8)), 0), tmp_path)
    monkeypatch.setattr(get_decoder(JPEGLosslessSV1), "_available", {})
    message = refusal(lambda: decode(packed, "folder/IM1"))
    assert message.startswith("folder/IM1: compressed as JPEG Lossless, Non-Hierarchical")
    assert "pip install '.[medical]'" in message


def test_a_compression_that_nothing_decodes_is_named(refusal: Refusal) -> None:
    dataset = ct_slice(hounsfield((1, 8, 8)), 0)
    from pydicom.encaps import encapsulate

    dataset.PixelData = encapsulate([b"video"])
    dataset.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.4.102"  # MPEG-4
    message = refusal(lambda: decode(content(dataset), "folder/IM1"))
    assert "compressed as MPEG-4" in message
    assert "export it uncompressed" in message


def test_a_deflated_file_is_not_unpacked(refusal: Refusal) -> None:
    dataset = ct_slice(np.zeros((1, 512, 512), np.int16), 0)
    dataset.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1.99"
    packed = content(dataset)
    for read in (read_header, decode):
        assert "a deflated file; export it uncompressed" in refusal(lambda r=read: r(packed, "x"))


def test_truncated_files_are_named_and_their_content_is_not(refusal: Refusal) -> None:
    whole = content(ct_slice(hounsfield((1, 64, 64)), 0, PatientName="Secret^Name"))
    for length in range(140, len(whole), 331):
        with pytest.raises(DataError) as caught:
            decode(whole[:length], "folder/IM1")
        assert str(caught.value).startswith("folder/IM1: ")
        assert "Secret" not in str(caught.value)


def test_more_pixels_than_any_image_has_are_not_decoded(refusal: Refusal) -> None:
    for sides in ({"Rows": 65535, "Columns": 65535}, {"NumberOfFrames": 10**9}, {"Rows": 0}):
        dataset = ct_slice(hounsfield((1, 8, 8)), 0, **sides)
        message = refusal(lambda made=dataset: decode(content(made), "x"))
        assert "at most 50,000,000 a frame and 400,000,000 a file are read" in message


def test_reports_are_no_images_and_damaged_images_are_not_called_reports(
    refusal: Refusal,
) -> None:
    report = dicom_image(np.zeros((2, 2), np.uint8))
    for name in ("Rows", "Columns", "PixelData"):
        delattr(report, name)
    report.SOPClassUID = "1.2.840.10008.5.1.4.1.1.88.22"
    assert read_header(content(report), "a file").kind == "other"
    report.SOPClassUID = MRImageStorage
    assert "without an image" in refusal(lambda: read_header(content(report), "a file"))
