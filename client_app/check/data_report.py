"""Compare this hospital's data with the codebook: counts that are shown here and never leave."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from learning.data import IN_BOTH, Examples, Partition
from learning.data.duplicates import exact_copies, near_copies
from learning.data.tables.encode import ColumnCounts

from .finding import Finding

_FEWEST_OF_A_CLASS = 5  # held out; below it no AUC is computed
_FAR = 3.0  # scales from the centre: mostly another unit
_MANY = 0.01  # of the values
_MOST_FOR_COPIES = 20_000


@dataclass(frozen=True)
class DataReport:
    """What this hospital has, in numbers."""

    examples: int
    patients: int | None
    train: dict[str, int]
    held_out: dict[str, int]
    left_out: dict[str, int]
    exact_copies: int
    near_copies: int | None
    columns: dict[str, ColumnCounts]

    def as_dict(self) -> dict[str, object]:
        """Return the report for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Return the report as lines of a table."""
        yield f"{'':24}{'to train on':>12}{'held out':>12}"
        for name in self.train:
            yield f"{name[:23]:24}{self.train[name]:>12}{self.held_out[name]:>12}"
        total = sum(self.train.values()), sum(self.held_out.values())
        yield f"{'all':24}{total[0]:>12}{total[1]:>12}"
        if self.patients is not None:
            yield f"{'patients':24}{self.patients:>12}"
        for name, count in self.left_out.items():
            yield f"{name[:23]:24}{count:>12}"
        yield f"{'exact copies':24}{self.exact_copies:>12}"
        if self.near_copies is not None:
            yield f"{'near copies':24}{self.near_copies:>12}"
        if self.columns:
            yield ""
            yield f"{'column':24}{'missing':>12}{'clipped':>12}{'unknown':>12}  median"
        for name, counts in self.columns.items():
            median = counts.median_scales
            shown = "" if median is None else f"{median:+.1f} scales from the centre"
            numbers = f"{counts.missing:>12}{counts.clipped:>12}{counts.unknown:>12}"
            yield f"{name[:23]:24}{numbers}  {shown}".rstrip()


def report_on(partition: Partition) -> DataReport:
    """Count what is there."""
    parts = (partition.train, partition.held_out)
    features = np.concatenate([part.features for part in parts])
    classes = partition.classes or ()
    is_image = features.ndim > 2 and len(features) <= _MOST_FOR_COPIES
    train, held_out = (_by_class(part, classes) for part in parts)
    return DataReport(
        len(features),
        _patients(parts),
        train,
        held_out,
        dict(partition.left_out),
        exact_copies(features),
        near_copies(features) if is_image else None,
        dict(partition.columns),
    )


def findings(report: DataReport) -> Iterator[Finding]:
    """Return what looks wrong; nothing of it keeps an agent from training."""
    for name, counts in report.columns.items():
        yield from _column(name, counts, report.examples)
    if in_both := report.left_out.get(IN_BOTH):
        yield _warning(
            f"{in_both} images in train/ are of patients, or copies of images, in test/: test/ "
            "wins, and they are not trained on",
            "nothing, or move them to one of the folders",
        )
    present = [f"{name} ({count})" for name, count in report.train.items() if count]
    if len(present) < 2:
        yield _warning(
            f"only the class {present[0] if present else '(none)'} to train on",
            "nothing, if that is so here; otherwise look at levels in [data.columns]",
        )
    few = [f"{name} {n}" for name, n in report.held_out.items() if n < _FEWEST_OF_A_CLASS]
    if few:
        yield _warning(
            f"too few are held out of {', '.join(few)}: no AUC is computed below "
            f"{_FEWEST_OF_A_CLASS} of a class",
            "nothing, or add data",
        )
    copies = report.exact_copies + (report.near_copies or 0)
    if copies:
        yield _warning(
            f"{report.exact_copies} exact and {report.near_copies or 0} near copies of examples",
            "name the patients, so that copies of one patient stay together: see group-column",
        )


def _column(name: str, counts: ColumnCounts, examples: int) -> Iterator[Finding]:
    if counts.median_scales is not None and abs(counts.median_scales) > _FAR:
        yield _warning(
            f"column {name!r}: half of the values are {abs(counts.median_scales):.0f} scales or "
            "more from the codebook's centre: is the unit the codebook's?",
            f"set factor in [data.columns.{name}]",
        )
    elif counts.clipped > _MANY * examples:
        yield _warning(
            f"column {name!r}: {counts.clipped} values are outside the plausible range and clipped",
            "correct them, or ask the coordinator about the range",
        )
    if counts.unknown > _MANY * examples:
        yield _warning(
            f"column {name!r}: {counts.unknown} values are none of the codebook's",
            f"map your own words with levels in [data.columns.{name}]",
        )
    if counts.missing == examples:
        yield _warning(f"column {name!r}: missing everywhere", "look for it under another name")


def _warning(text: str, remedy: str) -> Finding:
    return Finding("data", "warning", text, remedy)


def _patients(parts: tuple[Examples, Examples]) -> int | None:
    groups = [part.groups for part in parts if part.groups is not None]
    return len(np.unique(np.concatenate(groups))) if len(groups) == len(parts) else None


def _by_class(part: Examples, classes: tuple[str, ...]) -> dict[str, int]:
    return {name: int((part.labels == at).sum()) for at, name in enumerate(classes)}
