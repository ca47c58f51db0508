"""`feddc lab data`: which data sets need files, where they belong, and whether they are intact."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from lab.data_files import damaged, part, verified
from learning.data import DataError, DataOptions, default_folder, load, names
from learning.data.sources import SOURCES
from operation.terminal import activity


@dataclass(frozen=True)
class DataRow:
    """A data set: its folder, its state, and where to get it."""

    name: str
    folder: str | None
    examples: int | None
    state: str
    source: str


def rows() -> Iterator[DataRow]:
    """Load every data set that has a default folder or needs no files."""
    for name in names():
        source = SOURCES.get(name)
        folder = default_folder(name)
        where = None if folder is None else str(folder)
        if source is not None and source.default is None:
            yield DataRow(name, None, None, "set data-dir", source.publisher)
            continue
        publisher = source.publisher if source else "needs no files"
        if source is not None and folder is None:
            yield DataRow(name, None, None, f"set FEDDC_DATA, then {source.default}/", publisher)
            continue
        try:
            dataset = load(name, folder=folder, seed=0, options=DataOptions())
        except DataError as error:
            missing = folder is not None and not folder.exists()
            yield DataRow(name, where, None, "missing" if missing else str(error), publisher)
            continue
        count = len(dataset.train) + len(dataset.test)
        yield DataRow(name, where, count, _state(name, folder, count), publisher)


def _state(name: str, folder: Path | None, count: int) -> str:
    """Describe how complete a data set is, and whether it matches the published files."""
    if folder is None:
        return "built in"
    if wrong := damaged(name, folder):
        return f"damaged: {', '.join(wrong)} {'has' if len(wrong) == 1 else 'have'} another MD5"
    if some := part(name, count):
        return some
    return "intact: the publisher's MD5" if verified(name, folder) else "complete by count"


def show_data(*, json_output: bool) -> None:
    """Print all data sets; every file is read, so that a listed data set can be used."""
    if json_output:
        typer.echo(json.dumps([asdict(row) for row in rows()]))
        return
    console = Console()
    table = Table("data set", "state", "examples", "folder", "from")
    with activity("reading the data"):
        for row in rows():
            table.add_row(
                row.name, row.state, str(row.examples or "–"), row.folder or "–", row.source
            )
    console.print(table)
    console.print(
        f"FEDDC_DATA is {os.environ.get('FEDDC_DATA') or 'not set'}. Nothing is downloaded; "
        "docs/models-and-data.md lists the files and where they belong."
    )
