"""Reading 1,000 DICOM files of 512×512 pixels: from the files, and from the cache.

python -m benchmarks.data [--files 1000] [--json]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from pydicom import dcmwrite
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian, generate_uid

from learning.data.medical.labelled_images import LabelSource, read_labelled_images
from protocol.codebook import Images

_SIDE = 512
_FORM = Images(view="slice", size=(128, 128))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), arguments.files)
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{arguments.files} DICOM files of {_SIDE}×{_SIDE} pixels, 16 bits, uncompressed")
    print(f"decoded:        {result['dicom_s']:.1f} s")
    print(f"from the cache: {result['cached_s']:.1f} s")


def measure(folder: Path, files: int) -> dict[str, float]:
    root, cache = folder / "images", folder / "cache"
    _write(root, files)
    seconds = {}
    for name in ("dicom_s", "cached_s"):
        started = time.perf_counter()
        found = read_labelled_images(root, _FORM, LabelSource(), cache=cache)
        seconds[name] = time.perf_counter() - started
        if found.survey.images != files:
            raise RuntimeError(f"{found.survey.images} images were read, not {files}")
    return {"files": files, **seconds}


def _write(root: Path, files: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(files):
        dataset = Dataset()
        dataset.file_meta = FileMetaDataset()
        dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        dataset.SOPClassUID = DigitalXRayImageStorageForPresentation
        dataset.SOPInstanceUID = generate_uid()
        dataset.SeriesInstanceUID = generate_uid()
        dataset.StudyInstanceUID = generate_uid()
        dataset.PatientID = f"P{number // 2}"
        dataset.Modality = "DX"
        dataset.Rows = dataset.Columns = _SIDE
        dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME1"
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 12, 11
        dataset.PixelRepresentation = 0
        dataset.WindowCenter, dataset.WindowWidth = 2048, 3000
        dataset.PixelData = rng.integers(0, 4096, (_SIDE, _SIDE), dtype=np.uint16).tobytes()
        path = root / ("ill", "well")[number % 2] / f"IM{number:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        dcmwrite(path, dataset, enforce_file_format=True)


if __name__ == "__main__":
    main()
