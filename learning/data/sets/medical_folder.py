"""A folder of DICOM or NIfTI files, as a PACS exports it, with a table of labels."""

from pathlib import Path

import numpy as np

from learning.data.examples import IN_BOTH, Dataset
from learning.data.medical.labelled_images import LabelSource, read_labelled_images
from learning.data.options import DataOptions
from learning.data.partition.groups import set_apart
from learning.data.sources import require
from protocol.codebook import Images

_SIDE = 128


def medical_folder(folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read all images; a patient's stay together. Without a codebook they are read as slices."""
    root = require("medical-folder", folder)
    found = read_labelled_images(
        root,
        options.images or _plain(options),
        LabelSource(
            table=root / options.labels if options.labels else None,
            label_column=options.label_column,
            key=options.label_key,
            key_column=options.key_column,
            leave_out=options.unlabelled == "leave-out",
            levels=dict(options.levels),
        ),
        classes=options.classes,
        unreadable=options.unreadable,
        cache=options.cache,
    )
    examples = found.examples
    if found.for_test.any():
        pool, test = np.flatnonzero(~found.for_test), np.flatnonzero(found.for_test)
    elif options.held_out is not None:
        pool, test = options.held_out.set_apart(
            found.identities, examples.groups, options.test_fraction
        )
    else:
        pool, test = set_apart(len(examples), examples.groups, options.test_fraction, seed)
    survey = found.survey
    left_out = {
        "unreadable files": len(survey.unreadable),
        "localizers": survey.localizers,
        "images without a class": survey.unlabelled,
        "copies of files": survey.copies,
        IN_BOTH: survey.in_both,
    }
    return Dataset(
        "medical-folder",
        examples.take(pool),
        examples.take(test),
        found.classes,
        {reason: count for reason, count in left_out.items() if count},
    )


def _plain(options: DataOptions) -> Images:
    side = options.image_size or _SIDE
    return Images(view="slice", size=(side, side), channels=3 if options.image_mode == "rgb" else 1)
