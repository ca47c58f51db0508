"""A hospital's table as examples: features and labels by the codebook, patients kept together."""

from dataclasses import dataclass
from pathlib import Path

from learning.data.examples import DataError, Examples
from learning.data.partition.groups import GROUP_COLUMNS, unite
from learning.data.partition.held_out import HeldOut, identities, row_contents
from learning.data.partition.split import Partition
from learning.data.tables.encode import ColumnCounts, encode_columns, encode_labels
from learning.data.tables.files import read_table
from learning.data.tables.local_columns import LocalColumns
from learning.data.tables.table import Table
from protocol.codebook import Codebook


@dataclass(frozen=True, eq=False)
class Rows:
    """The examples of a table, and what only this hospital may know about them."""

    examples: Examples
    identities: list[str]
    """The patient of each row; without patients' numbers, the row's own content."""

    counts: dict[str, ColumnCounts]
    unused: tuple[str, ...]
    """Columns that are no part of the codebook."""

    def partition(
        self, name: str, codebook: Codebook, held_out: HeldOut, fraction: float
    ) -> Partition:
        """Hold the fraction of the patients out."""
        pool, test = held_out.set_apart(self.identities, self.examples.groups, fraction)
        examples = self.examples
        return Partition(
            name, examples.take(pool), examples.take(test), codebook.classes, columns=self.counts
        )


def read_rows(
    path: Path, codebook: Codebook, local: LocalColumns, *, group_column: str = "auto"
) -> Rows:
    """Read a table by the codebook; DataError lists everything that is wrong with it."""
    table = read_table(path)
    problems = [
        f"hospital.toml: [data.columns] names {name!r}, which is no column of the codebook"
        for name in local
        if name not in {codebook.label, *(column.name for column in codebook.columns)}
    ]
    encoded = encode_columns(table, codebook, local, problems)
    labels = encode_labels(table, codebook, local, problems)
    grouping = _grouping(table, group_column, problems)
    if problems:
        raise DataError(*problems)
    patients = [table.texts(name) for name in grouping]
    whose = identities(patients, row_contents(encoded.features, labels))
    groups = unite(*patients, whose)
    used = {table.find(_local_name(name, local)) for name in (codebook.label, *encoded.counts)}
    unused = tuple(name for name in table.columns if name not in used and name not in grouping)
    return Rows(Examples(encoded.features, labels, groups), whose, encoded.counts, unused)


def _local_name(name: str, local: LocalColumns) -> str:
    return (local[name].column if name in local else "") or name


def _grouping(table: Table, setting: str, problems: list[str]) -> list[str]:
    if setting == "none":
        return []
    if setting == "auto":
        return [name for known in GROUP_COLUMNS if (name := table.find(known)) is not None]
    name = table.find(setting)
    if name is None:
        problems.append(f"{table.source}: no column {setting!r}; set group-column to another")
    return [] if name is None else [name]
