"""`feddc lab page`: write the reports of runs, or one page that compares them."""

from pathlib import Path

import typer

from lab.experiments import ExperimentError
from lab.results.plots.report_page import report_page
from lab.sweep.folder import RESULTS, RunFolder
from operation import files
from operation.runs.event_file import FILE_NAME, NewerEvents
from operation.terminal import activity
from server_app.pages.report import PUBLIC, report, write_reports
from server_app.pages.run_view import RunRecord, public_view


def write_page(runs: list[Path], output: Path | None) -> int:
    """Write the page or pages; return the exit code."""
    if len(runs) == 1 and (runs[0] / RESULTS).is_file():
        return _write_comparison(runs[0], output)
    for run in runs:
        if not (run / FILE_NAME).is_file():
            typer.echo(f"feddc: {run} is not a run folder: it has no {FILE_NAME}", err=True)
            return 2
    try:
        with activity("reading the runs"):
            if len(runs) == 1 and output is None:
                written = list(write_reports(runs[0]))
            else:
                written = [output or Path(PUBLIC)]
                views = [public_view(RunRecord.read(run)) for run in runs]
                files.replace(written[0], report(views, "FedDC: comparison of runs").encode())
    except (NewerEvents, OSError) as error:
        typer.echo(f"feddc: {error}", err=True)
        return 2
    for path in written:
        typer.echo(f"wrote {path}")
    return 0


def _write_comparison(run: Path, output: Path | None) -> int:
    """Write the report of a comparison by `feddc lab run`."""
    path = output or run / PUBLIC
    try:
        files.replace(path, report_page(RunFolder.open(run).results()).encode())
    except (ExperimentError, OSError) as error:
        typer.echo(f"feddc: {error}", err=True)
        return 2
    typer.echo(f"wrote {path}")
    return 0
