"""All images of a folder with their classes and patients, ready to train on."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError, Examples
from learning.data.extras import MissingExtra
from learning.data.medical.cache import ImageCache
from learning.data.medical.decoding import features_of
from learning.data.medical.labels import Key, class_folders, find_labels
from learning.data.medical.scan import ScannedFile, scan
from learning.data.medical.series import Item, check_item, items_of
from learning.data.partition.groups import unite
from learning.data.tables.files import READERS, read_table
from protocol.codebook import Images, level_key

_log = logging.getLogger(__name__)
_LABELS = "labels"


@dataclass(frozen=True, kw_only=True)
class LabelSource:
    """Where the classes of images are written down."""

    table: Path | None = None
    """None: labels.csv (.xlsx, .parquet) in the folder; without it, folders named as classes."""

    label_column: str = "label"
    key: Key | Literal["auto"] = "auto"
    key_column: str = ""
    leave_out: bool = False
    """Leave out images without a class or with two, instead of refusing all."""

    levels: Mapping[str, str] = field(default_factory=dict)
    """This hospital's words for the study's classes."""


@dataclass(frozen=True)
class Survey:
    """What was found in a folder; it never leaves the hospital."""

    images: int
    patients: int
    localizers: int
    copies: int
    others: int
    unreadable: dict[str, str]
    unlabelled: int
    rows_without_image: int
    in_both: int
    """Training images left out because their patient has images in test/: that folder wins."""


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """The examples of a folder."""

    examples: Examples
    classes: tuple[str, ...]
    identities: list[str]
    """The patient of each image; where nobody says, the image's own digest."""

    for_test: NDArray[np.bool_]
    """What is in test/, if there are the folders train/ and test/."""

    survey: Survey


def read_labelled_images(
    root: Path,
    form: Images,
    labels: LabelSource,
    *,
    classes: Sequence[str] = (),
    unreadable: int = 0,
    cache: Path | None = None,
) -> LabelledImages:
    """Read a folder; a DataError lists everything that is wrong with it.

    Up to `unreadable` files that are damaged or no images are left out.
    """
    store = ImageCache(cache, root)
    found = scan(root, store)
    if not found.images:
        raise DataError(
            *found.unreadable.values(),
            f"{root}: no DICOM or NIfTI images in it; correct data-dir",
        )
    items = items_of(_of_parts(root, found.images), form)
    problems: list[str] = []
    texts, patients, unused = _labelled(root, items, labels, problems)
    chosen = [at for at, text in enumerate(texts) if text]
    left_out = len(items) - len(chosen)
    if not chosen and not problems:
        raise DataError(f"{root}: none of its {len(items)} images has a label")
    positions, names = _positions([texts[at] for at in chosen], classes, labels.levels, problems)
    # An image whose label is a problem too may have another one, to be told at once.
    wanted = [items[at] for at in chosen] if labels.leave_out else items
    fitting = [item for item in wanted if _fits(item, form, problems)]
    features, damaged = _features(fitting, form, store, problems)
    all_damaged = {**found.unreadable, **damaged}
    if len(all_damaged) > unreadable:
        problems += _unreadable(all_damaged, unreadable)
    if problems:
        raise DataError(*problems)
    kept = [n for n, at in enumerate(chosen) if items[at].name not in damaged]
    identities = [_identity(items[chosen[n]], patients[chosen[n]]) for n in kept]
    groups = unite(identities, [items[chosen[n]].digests[0] for n in kept])
    if not kept:
        raise DataError(*all_damaged.values(), f"{root}: none of its images can be read")
    in_test = np.array([_part(root, items[chosen[n]].files[0]) == "test" for n in kept])
    leaks = ~in_test & np.isin(groups, groups[in_test])
    survey = Survey(
        images=int((~leaks).sum()),
        patients=len(set(identities)),
        in_both=int(leaks.sum()),
        localizers=found.localizers,
        copies=found.copies,
        others=found.others,
        unreadable=all_damaged,
        unlabelled=left_out,
        rows_without_image=unused,
    )
    _report(survey)
    rows = np.flatnonzero(~leaks)
    examples = Examples(features[kept], positions[kept], groups).take(rows)
    return LabelledImages(examples, names, [identities[row] for row in rows], in_test[rows], survey)


def _part(root: Path, file: ScannedFile) -> str:
    """Return train or test, if the folder has both; else an empty text."""
    if not ((root / "train").is_dir() and (root / "test").is_dir()):
        return ""
    return file.name.partition("/")[0]


def _of_parts(root: Path, files: list[ScannedFile]) -> list[ScannedFile]:
    """Leave out what is beside train/ and test/, such as val/."""
    return [file for file in files if _part(root, file) in ("", "train", "test")]


def label_table(root: Path, labels: LabelSource) -> Path | None:
    """Return the table with the labels; None if folders are named as classes."""
    if labels.table is not None:
        return labels.table
    places = (root / f"{_LABELS}{suffix}" for suffix in sorted(READERS))
    return next((place for place in places if place.is_file()), None)


def _labelled(
    root: Path, items: list[Item], labels: LabelSource, problems: list[str]
) -> tuple[list[str], list[str], int]:
    path, nothing = label_table(root, labels), [""] * len(items)
    try:
        if path is None:
            level = 1 if _part(root, items[0].files[0]) else 0
            return class_folders(items, root, level=level), nothing, 0
        found = find_labels(
            items,
            read_table(path),
            label_column=labels.label_column,
            key=labels.key,
            key_column=labels.key_column,
            leave_out=labels.leave_out,
        )
    except DataError as error:
        problems += error.problems
        return nothing, nothing, 0
    problems += found.problems
    return found.classes, found.patients, found.rows_without_image


def _positions(
    texts: list[str], classes: Sequence[str], levels: Mapping[str, str], problems: list[str]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    own = {level_key(mine): level_key(theirs) for mine, theirs in levels.items()}
    keys = [own.get(level_key(text), level_key(text)) for text in texts]
    names = tuple(classes) or tuple(sorted(set(texts)))
    position = {level_key(name): at for at, name in enumerate(names)}
    unknown = sum(key not in position for key in keys)
    if unknown:
        absent = [name for name in names if level_key(name) not in keys]
        problems.append(
            f"{unknown} labels are none of the classes {', '.join(names)}"
            + (f" ({', '.join(absent)} not found)" if absent else "")
            + "; map your own words with levels in [data.columns.label]"
        )
    if len(names) == 1 and not problems:  # else others may be among them
        problems.append(f"only one class, {names[0]!r}; name all of the study's with classes")
    return np.array([position.get(key, -1) for key in keys], dtype=np.int64), names


def _fits(item: Item, form: Images, problems: list[str]) -> bool:
    try:
        check_item(item, form)
    except DataError as error:
        problems += error.problems
        return False
    return True


def _features(
    items: list[Item], form: Images, cache: ImageCache, problems: list[str]
) -> tuple[NDArray[np.float32], dict[str, str]]:
    features = np.zeros((len(items), *form.shape), dtype=np.float32)
    damaged: dict[str, str] = {}
    missing: dict[str, None] = {}  # the same for every file
    for row, item in enumerate(items):
        try:
            features[row] = features_of(item, form, cache)
        except MissingExtra as error:
            missing |= dict.fromkeys(error.problems)
        except DataError as error:
            damaged[item.name] = str(error)
    problems += missing
    cache.keep_only(cache.key(item.digests, form.model_dump_json()) for item in items)
    return features, damaged


def _identity(item: Item, patient: str) -> str:
    # An archive that hides patients' numbers may write the same for all; a table's is meant.
    number = patient or item.header.patient or item.header.study
    return f"patient {number}" if number else f"image {item.digests[0]}"


def _unreadable(files: dict[str, str], most: int) -> list[str]:
    return [
        *files.values(),
        f"{len(files)} files can't be read, {most} may be left out: mend or remove them, or set "
        f"unreadable = {len(files)}",
    ]


def _report(survey: Survey) -> None:
    for count, what in (
        (len(survey.unreadable), "unreadable files left out"),
        (survey.unlabelled, "images without exactly one label left out"),
        (survey.localizers, "localizers left out"),
        (survey.copies, "copies of images left out"),
        (survey.in_both, "images of train/ left out: their patient or a copy is in test/"),
    ):
        if count:
            _log.warning("%d %s", count, what)
