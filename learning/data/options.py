"""Options for loading a data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from learning.data.examples import DataError
from learning.data.partition.held_out import HeldOut
from protocol.codebook import Images

ImageMode = Literal["auto", "grey", "rgb"]
LabelKey = Literal["auto", "file", "series", "accession", "study", "patient"]
Unlabelled = Literal["refuse", "leave-out"]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options of the loaders; each loader uses those it knows and ignores the others."""

    test_fraction: float = 0.2
    """The fraction of all examples that becomes the test set, where the publisher has set none
    apart. 0 for a hospital that loads its own data and leaves testing to the coordinator."""

    classes: tuple[str, ...] = ()
    """image-folder, csv: the classes in label order. Empty: those found, sorted. Name them
    when a hospital may lack a class: otherwise its labels would mean something else there."""

    image_size: int | None = None
    """Images are resized to image_size × image_size. None: 150 for brain-mri (as in the
    paper), 32 for cifar10 (it can be 16 or 8), 128 for other images."""

    image_mode: ImageMode = "auto"
    """auto: grey for brain-mri and chest-xray, and where all images are grey; else rgb."""

    pixel_centre: float = 0.5
    pixel_scale: float = 0.25
    """image-folder: features are (pixel/255 − centre)/scale. Constants instead of the pool's mean,
    so that an image is the same at every hospital; those of chest X-rays (0.48 and 0.24), rounded,
    or the codebook's."""

    group_column: str = "auto"
    """The column, in the csv or in an image folder's manifest.csv, whose equal values must
    stay together. auto: all columns with one of the known names (patient_token,
    near_dup_group, …), and byte-identical images. none: every example on its own, which is
    the paper's random split and lets duplicates leak from train to test."""

    label_column: str = "label"
    """csv, medical-folder: the column with the class."""

    hospital_column: str | None = None
    """csv: the column with the hospital an example comes from."""

    standardise: bool = True
    """csv: with the training pool's mean and standard deviation. False where a study has
    agreed on a scale beforehand: each hospital's own mean would undo it."""

    images: Images | None = None
    """medical-folder: what an example is, from the study's codebook. None: grey slices of
    image_size as a viewer displays them."""

    labels: str = ""
    """medical-folder: the table of the labels, from the folder. Empty: labels.csv (.xlsx,
    .parquet) in it; without one, the folders of the first level are the classes."""

    label_key: LabelKey = "auto"
    """medical-folder: what tells which image a row is about. auto: the most precise that the table
    has a column for."""

    key_column: str = ""
    """medical-folder: the column with it. Empty: found by its name."""

    levels: tuple[tuple[str, str], ...] = ()
    """medical-folder: a hospital's own words for classes, each with the codebook's."""

    unlabelled: Unlabelled = "refuse"
    """medical-folder: what happens to images without a label, or with two."""

    unreadable: int = 0
    """medical-folder: how many damaged files are left out rather than refused."""

    cache: Path | None = None
    """medical-folder: where decoded images are kept for the next start. None: nowhere."""

    held_out: HeldOut | None = None
    """image-folder, csv, medical-folder: a real hospital's, who are held out stay so. None: drawn
    by the seed."""

    train_examples: int = 5_000
    """synthetic: number of examples in the training pool."""

    test_examples: int = 5_000
    """synthetic: number of examples in the test set."""

    def __post_init__(self) -> None:
        if not 0 <= self.test_fraction < 1:
            raise DataError(
                f"test-fraction must be at least 0 and below 1, got {self.test_fraction}"
            )
        if self.image_size is not None and self.image_size < 1:
            raise DataError(f"image-size must be at least 1 pixel, got {self.image_size}")
        if self.image_mode not in ("auto", "grey", "rgb"):
            raise DataError(f"image-mode must be auto, grey or rgb, got {self.image_mode!r}")
        if len(set(self.classes)) != len(self.classes):
            raise DataError(f"classes must differ, got {', '.join(self.classes)}")
        if min(self.train_examples, self.test_examples) < 1:
            raise DataError(
                "train-examples and test-examples must be at least 1, "
                f"got {self.train_examples} and {self.test_examples}"
            )
