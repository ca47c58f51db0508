"""`feddc lab export`: the figures of a run for other programs."""

import csv
from pathlib import Path

import typer

from lab.notebook.run_result import RunResult
from learning.extras import install
from operation.runs.event_file import FILE_NAME, NewerEvents

COLUMNS = ("leg", "round", "hospital", "metric", "value")


def export(run: Path, to: str, output: Path | None, *, with_hospitals: bool) -> int:
    """Write the figures; return the exit code."""
    if not (run / FILE_NAME).is_file():
        typer.echo(f"feddc: {run} is not a run folder: it has no {FILE_NAME}", err=True)
        return 2
    try:
        rows = RunResult(run).rows_to_hand_out(with_hospitals=with_hospitals)
    except NewerEvents as error:
        typer.echo(f"feddc: {error}", err=True)
        return 2
    try:
        path = _csv(run, rows, output) if to == "csv" else _tensorboard(run, rows, output)
    except ImportError:
        needed = f"--to tensorboard needs the package tensorboard: {install('tensorboard')}"
        typer.echo(f"feddc: {needed}", err=True)
        return 2
    typer.echo(f"wrote {path}")
    return 0


def _csv(run: Path, rows: list[dict[str, object]], output: Path | None) -> Path:
    path = output or run / "metrics.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def _tensorboard(run: Path, rows: list[dict[str, object]], output: Path | None) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    folder = output or run / "tensorboard"
    writer = SummaryWriter(str(folder))
    for row in rows:
        tag = f"{row['hospital']}/{row['metric']}" if row["hospital"] else str(row["metric"])
        writer.add_scalar(tag, row["value"], row["round"])
    writer.close()
    return folder
