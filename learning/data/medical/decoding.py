"""From an item's files to its features."""

import numpy as np

from learning.data.examples import DataError
from learning.data.medical import dicom, nifti
from learning.data.medical.cache import ImageCache
from learning.data.medical.image_form import DecodedImage, Floats, apply_form
from learning.data.medical.orientation import to_canonical
from learning.data.medical.scan import ScannedFile
from learning.data.medical.series import Item, check_item, series_affine
from learning.data.sources import read_bytes
from protocol.codebook import Images

_EIGHT_BITS = 255


def features_of(item: Item, form: Images, cache: ImageCache) -> Floats:
    """Return an item's features, from the cache if they are there."""
    key = cache.key(item.digests, form.model_dump_json())
    features = cache.read(key, (form.channels, *form.size))
    if features is None:
        features = apply_form(decode_item(item, form), form)
        cache.write(key, features)
    return features


def decode_item(item: Item, form: Images) -> DecodedImage:
    """Decode an item; raise a DataError if it does not have what the form needs."""
    check_item(item, form)
    image = _stacked(item) if len(item.files) > 1 else _decoded(item.files[0])
    if form.spacing is not None and image.spacing is None:
        raise DataError(
            f"{item.name}: no pixel spacing, which the codebook's spacing needs; export it again "
            "with all of its headers, or leave it out"
        )
    is_shown = image.is_coloured or image.displayed is not None
    if form.intensity == "8-bit" and not is_shown:
        low, high = float(image.values.min()), float(image.values.max())
        if low < 0 or high > _EIGHT_BITS:
            raise DataError(
                f"{item.name}: more than 8 bits and no window for display; the codebook must have "
                "intensity hu-window or percentiles for such images"
            )
    if form.intensity != "8-bit" and image.is_coloured:
        raise DataError(
            f"{item.name}: colours, where the codebook's intensity {form.intensity} needs grey "
            "values; leave it out"
        )
    return image


def _decoded(file: ScannedFile) -> DecodedImage:
    content = read_bytes(file.path)
    if file.header.kind == "nifti":
        return nifti.decode(content, str(file.path))
    return dicom.decode(content, str(file.path))


def _stacked(item: Item) -> DecodedImage:
    depth, rows, columns = item.shape
    if depth * rows * columns > dicom.MOST_VOXELS:
        raise DataError(f"{item.name}: more than {dicom.MOST_VOXELS:,} voxels")
    slices = [_decoded(file) for file in item.files]
    if len({one.values.shape for one in slices}) > 1 or len({one.inverted for one in slices}) > 1:
        raise DataError(f"{item.name}: slices of mixed kinds; export them as series of their own")
    affine = series_affine(item)
    values, spacing = to_canonical(np.concatenate([one.values for one in slices]), affine)
    shown = [one.displayed for one in slices if one.displayed is not None]
    displayed = None
    if len(shown) == len(slices):
        displayed, _ = to_canonical(np.concatenate(shown), affine)
    return DecodedImage(values, spacing, displayed, inverted=slices[0].inverted)
