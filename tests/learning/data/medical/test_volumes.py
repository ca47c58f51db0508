"""Volumes: series in any order, NIfTI in any orientation, one array; and what is refused."""

from collections.abc import Callable
from itertools import permutations, product
from pathlib import Path
from typing import Any

import highdicom
import nibabel
import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray

from learning.data.medical.cache import ImageCache
from learning.data.medical.decoding import decode_item
from learning.data.medical.image_form import DecodedImage, apply_form
from learning.data.medical.nifti import decode as decode_nifti
from learning.data.medical.scan import scan
from learning.data.medical.series import Item, items_of
from protocol.codebook import Images
from tests.learning.data.medical.made_images import ct_slice, hounsfield, save, save_series

Refusal = Callable[[Callable[[], object]], str]
VOLUME = Images(view="volume", size=(4, 8, 8), intensity="hu-window", window=(-1000, 1000))
SLICE = Images(view="slice", size=(8, 8))


def items(folder: Path, form: Images = VOLUME) -> list[Item]:
    return items_of(scan(folder, ImageCache(None, folder)).images, form)


def only(folder: Path, form: Images = VOLUME) -> DecodedImage:
    (item,) = items(folder, form)
    return decode_item(item, form)


def nifti(values: NDArray[Any], affine: NDArray[Any]) -> bytes:
    return bytes(nibabel.Nifti1Image(values, affine).to_bytes())


def test_a_ct_series_out_of_order_is_the_volume_of_another_library(tmp_path: Path) -> None:
    volume = hounsfield((6, 12, 10))
    save_series(tmp_path, volume, order=[3, 0, 5, 1, 4, 2])
    image = only(tmp_path)
    np.testing.assert_array_equal(image.values, volume)
    assert image.spacing == pytest.approx((2.5, 0.5, 0.75))

    files = [pydicom.dcmread(path) for path in sorted(tmp_path.iterdir())]
    other = highdicom.get_volume_from_series(files)
    aligned = other.to_patient_orientation(("H", "P", "L")).array
    np.testing.assert_array_equal(image.values, aligned)


def test_a_sagittal_series_is_turned_like_an_axial_one(tmp_path: Path) -> None:
    """Slices from right to left, rows towards the feet: what is superior stays superior."""
    volume = hounsfield((4, 5, 6))  # superior, posterior, left
    sagittal = np.moveaxis(volume, 2, 0)[:, ::-1]  # left; rows from superior down; posterior
    for index in range(len(sagittal)):
        made = ct_slice(
            np.ascontiguousarray(sagittal),
            index,
            SeriesInstanceUID="1.2.3",
            ImageOrientationPatient=[0, 1, 0, 0, 0, -1],
            ImagePositionPatient=[float(index), 0.0, 50.0],
            PixelSpacing=[3.0, 2.0],
        )
        save(made, tmp_path / f"{9 - index}")
    image = only(tmp_path)
    np.testing.assert_array_equal(image.values, volume)
    assert image.spacing == pytest.approx((3.0, 2.0, 1.0))


def test_nifti_is_read_in_one_orientation_whatever_it_was_stored_in() -> None:
    canonical = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    expected = canonical[::-1, ::-1].T  # from right, anterior, superior
    sizes = np.diag([0.5, 1.5, 2.5, 1.0])
    image = nibabel.Nifti1Image(canonical, sizes)
    for axes in permutations(range(3)):
        for flips in product((1, -1), repeat=3):
            turned = image.as_reoriented(np.array(list(zip(axes, flips, strict=True)), float))
            found = decode_nifti(bytes(turned.to_bytes()), "a file")
            np.testing.assert_array_equal(found.values, expected)
            assert found.spacing == pytest.approx((2.5, 1.5, 0.5))


def test_nifti_and_dicom_of_one_patient_are_the_same_array(tmp_path: Path) -> None:
    volume = hounsfield((5, 7, 6))
    save_series(tmp_path / "dicom", volume)
    # From (left, posterior, superior) indices to right, anterior, superior millimetres.
    affine = np.diag([-0.75, -0.5, 2.5, 1.0])
    (tmp_path / "nifti").mkdir()
    path = tmp_path / "nifti" / "volume.nii.gz"
    nibabel.Nifti1Image(np.ascontiguousarray(volume.T), affine).to_filename(path)
    first, second = only(tmp_path / "dicom"), only(tmp_path / "nifti")
    np.testing.assert_array_equal(first.values, second.values)
    assert first.spacing == pytest.approx(second.spacing)
    np.testing.assert_allclose(apply_form(first, VOLUME), apply_form(second, VOLUME), atol=1e-6)


def test_scaled_nifti_2_is_read_as_scaled() -> None:
    image = nibabel.Nifti2Image(np.full((2, 2, 2), 7, np.int16), np.eye(4))
    image.header.set_slope_inter(2.0, -3.0)
    found = decode_nifti(bytes(image.to_bytes()), "x").values
    np.testing.assert_array_equal(found, np.full((2, 2, 2), 11.0))


# --- what is refused ------------------------------------------------------------------------------


def problem(folder: Path, refusal: Refusal, form: Images = VOLUME) -> str:
    (item,) = items(folder, form)
    return refusal(lambda: decode_item(item, form))


def test_a_missing_slice_is_named_with_what_to_export(tmp_path: Path, refusal: Refusal) -> None:
    series = save_series(tmp_path, hounsfield((6, 8, 8)), order=[0, 1, 2, 4, 5])
    message = problem(tmp_path, refusal)
    assert message.startswith(f"series {series} (5 files")
    assert "1 slices missing, the first after IM0002; export the whole series again" in message


def test_mixed_spacing_is_named(tmp_path: Path, refusal: Refusal) -> None:
    series = save_series(tmp_path, hounsfield((4, 8, 8)))
    odd = pydicom.dcmread(tmp_path / "IM0003")
    odd.ImagePositionPatient = [-10, -20, 108.9]
    save(odd, tmp_path / "IM0003")
    message = problem(tmp_path, refusal)
    assert f"series {series}" in message
    assert "mixed distances between slices, 2.50 to 3.90 mm; export the whole series" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ImageOrientationPatient": [0, 1, 0, 0, 0, -1]}, "mixed orientations"),
        ({"PixelSpacing": [0.6, 0.75]}, "mixed pixel spacings"),
        ({"ImagePositionPatient": [-10, -20, 102.5]}, "two slices at one place"),
        ({"ImagePositionPatient": None}, "without position, orientation or spacing"),
    ],
)
def test_slices_that_do_not_fit_are_named(
    change: dict[str, Any], words: str, tmp_path: Path, refusal: Refusal
) -> None:
    series = save_series(tmp_path, hounsfield((4, 8, 8)))
    odd = pydicom.dcmread(tmp_path / "IM0002")
    for name, value in change.items():
        setattr(odd, name, value)
    save(odd, tmp_path / "IM0002")
    message = problem(tmp_path, refusal)
    assert message.startswith(f"series {series} (4 files")
    assert words in message
    assert "export" in message


def test_a_4d_nifti_is_refused_with_both_shapes(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "a.nii").write_bytes(nifti(np.zeros((4, 5, 6, 3), np.int16), np.eye(4)))
    message = problem(tmp_path, refusal)
    assert message.startswith("a.nii: 4 dimensions, (4, 5, 6, 3), where the codebook has volumes")
    assert "(4, 8, 8); split it into volumes" in message


def test_a_volume_for_a_slice_model_is_refused_with_both_shapes(
    tmp_path: Path, refusal: Refusal
) -> None:
    (tmp_path / "a.nii").write_bytes(nifti(np.zeros((4, 5, 6), np.int16), np.eye(4)))
    message = problem(tmp_path, refusal, SLICE)
    assert "a.nii: a volume of (4, 5, 6) where the codebook has slices of (8, 8)" in message


def test_a_slice_for_a_volume_model_is_refused_with_both_shapes(
    tmp_path: Path, refusal: Refusal
) -> None:
    save(ct_slice(hounsfield((1, 9, 7)), 0), tmp_path / "a")
    message = problem(tmp_path, refusal)
    assert "(1, 9, 7), where the codebook has volumes of (4, 8, 8); export the whole" in message


def test_truncated_nifti_files_are_named(refusal: Refusal) -> None:
    whole = nifti(np.zeros((4, 5, 6), np.int16), np.eye(4))
    for length in (348, 400, len(whole) - 1):
        message = refusal(lambda size=length: decode_nifti(whole[:size], "folder/a.nii"))
        assert message.startswith("folder/a.nii: truncated or damaged")


def test_a_nifti_header_can_t_ask_for_more_memory_than_allowed(refusal: Refusal) -> None:
    header = nibabel.Nifti1Header()
    header.set_data_shape((32767, 32767, 32767))
    content = header.binaryblock + bytes(4)
    content = content[:344] + b"n+1\x00" + content[348:]
    assert "voxels, where 1 to 400,000,000 are read" in refusal(lambda: decode_nifti(content, "x"))


# --- geometry and intensity -----------------------------------------------------------------------


def image(values: NDArray[Any], spacing: tuple[float, float, float] | None = None) -> DecodedImage:
    return DecodedImage(values.astype(np.float32), spacing)


def test_the_same_size_is_not_resampled_and_windows_are_clipped() -> None:
    volume = hounsfield((4, 8, 8))
    found = apply_form(image(volume), VOLUME)
    expected = (np.clip((volume + 1000) / 2000, 0, 1) - 0.5) / 0.25
    assert found.shape == (1, 4, 8, 8)
    np.testing.assert_allclose(found[0], expected, atol=1e-6)


def test_percentiles_are_those_of_the_image_and_turned_round_where_white_is_low() -> None:
    form = Images(view="slice", size=(8, 8), intensity="percentiles", percentiles=(10, 90))
    values = hounsfield((1, 8, 8)).astype(np.float32)
    low, high = np.percentile(values, [10, 90])
    expected = np.clip((values - low) / (high - low), 0, 1)
    found = apply_form(DecodedImage(values, None), form) * 0.25 + 0.5
    np.testing.assert_allclose(found, expected, atol=1e-5)
    inverted = apply_form(DecodedImage(values, None, inverted=True), form) * 0.25 + 0.5
    np.testing.assert_allclose(inverted, 1 - expected, atol=1e-5)


def test_downscaling_averages_like_pillow() -> None:
    from PIL import Image

    values = np.random.default_rng(0).random((64, 48)).astype(np.float32)
    form = Images(view="slice", size=(16, 16))
    found = apply_form(DecodedImage(values[np.newaxis], None, values[np.newaxis]), form)
    resized = Image.fromarray(values).resize((16, 16), Image.Resampling.BILINEAR)
    np.testing.assert_allclose(found[0] * 0.25 + 0.5, np.asarray(resized), atol=1e-4)


def test_spacing_resamples_then_crops_or_pads_around_the_centre() -> None:
    """A cube of 8 mm in the middle is 4 voxels of 2 mm, however finely it was scanned."""
    form = Images(
        view="volume", size=(8, 8, 8), intensity="hu-window", window=(0, 1), spacing=(2, 2, 2)
    )
    for sides, spacing in (((16, 32, 8), (1.0, 0.5, 2.0)), ((40, 40, 40), (1.0, 1.0, 1.0))):
        scanned = np.zeros(sides)
        inner = tuple(
            slice(round((side - 8 / mm) / 2), round((side + 8 / mm) / 2))
            for side, mm in zip(sides, spacing, strict=True)
        )
        scanned[inner] = 1
        found = apply_form(image(scanned, spacing), form)[0] * 0.25 + 0.5
        assert found.sum() == pytest.approx(64, rel=0.02)
        assert found[3:5, 3:5, 3:5] == pytest.approx(1, abs=1e-5)
        assert found[0] == pytest.approx(0, abs=1e-5)
    small = apply_form(image(np.ones((2, 2, 2)), (2.0, 2.0, 2.0)), form)[0] * 0.25 + 0.5
    assert small.sum() == pytest.approx(8, abs=1e-4)  # padded with the lowest value
