"""Decode NIfTI files, compressed or not, in one orientation."""

import math
import zlib
from typing import Any

import numpy as np

from learning.data.examples import DataError
from learning.data.extras import import_extra
from learning.data.medical.dicom import MOST_VOXELS
from learning.data.medical.headers import ImageHeader
from learning.data.medical.image_form import DecodedImage
from learning.data.medical.orientation import to_canonical

_HEADER_BYTES = 540  # of NIfTI-2; NIfTI-1 has 348
_MOST_EXTENSION = 16 << 20
_DAMAGED = "truncated or damaged; export it again or remove it"


def is_nifti(start: bytes) -> bool:
    """Recognise NIfTI-1 and NIfTI-2 by a file's first bytes, also inside gzip."""
    try:
        return _version(_unpacked(start, _HEADER_BYTES)) > 0
    except zlib.error:
        return False


def read_header(content: bytes, name: str) -> ImageHeader:
    """Read the dimensions."""
    shape = _checked(content, name).get_data_shape()
    return ImageHeader("nifti", shape=tuple(int(side) for side in shape))


def decode(content: bytes, name: str) -> DecodedImage:
    """Decode a volume, or a slice, as the file scales it."""
    header = _checked(content, name)
    shape = tuple(int(side) for side in header.get_data_shape())
    if any(side > 1 for side in shape[3:]):
        raise DataError(f"{name}: {shape} where a volume of 3 dimensions is expected; split it")
    nibabel = import_extra("nibabel", "medical", "reading NIfTI files")
    size = math.prod(shape) * header.get_data_dtype().itemsize
    kind = nibabel.Nifti1Image if _version(_unpacked(content, 540)) == 1 else nibabel.Nifti2Image
    try:
        # No more than the header speaks of: gzip packs zeros a thousandfold.
        image = kind.from_bytes(_unpacked(content, size + int(header["vox_offset"])))
        values = image.get_fdata(dtype=np.float32).reshape((*shape, 1, 1)[:3])
        # NIfTI counts towards right and anterior.
        affine = np.diag([-1.0, -1.0, 1.0, 1.0]) @ image.affine
        canonical, spacing = to_canonical(np.nan_to_num(values), affine)
    except Exception as error:
        raise DataError(f"{name}: {_DAMAGED}") from error
    return DecodedImage(canonical, spacing)


def _checked(content: bytes, name: str) -> Any:
    nibabel = import_extra("nibabel", "medical", "reading NIfTI files")
    try:
        start = _unpacked(content, _HEADER_BYTES)
        if _version(start) == 1:
            header = nibabel.Nifti1Header(start[:348], check=False)
        else:
            header = nibabel.Nifti2Header(start[:540], check=False)
        voxels = math.prod(int(side) for side in header.get_data_shape())
        offset = int(header["vox_offset"])
        header.get_data_dtype()
    except Exception as error:
        raise DataError(f"{name}: {_DAMAGED}") from error
    if b"ni" in (start[344:346], start[4:6]) or not 0 <= offset <= _MOST_EXTENSION:
        raise DataError(f"{name}: header and voxels in two files; convert it to one .nii file")
    if not 0 < voxels <= MOST_VOXELS:
        raise DataError(f"{name}: {voxels} voxels, where 1 to {MOST_VOXELS:,} are read")
    return header


def _version(start: bytes) -> int:
    if start[344:348] in (b"n+1\x00", b"ni1\x00"):
        return 1
    return 2 if start[4:8] in (b"n+2\x00", b"ni2\x00") else 0


def _unpacked(content: bytes, most: int) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content[:most]
    return zlib.decompressobj(wbits=31).decompress(content, most)
