"""`feddc hospital check` and `status`: is this site ready, and where do its experiments stand?"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operation.terminal import activity, echo, fail

from .shared import DEFAULT_FOLDER, Folder, exit_on_error, require_folder

if TYPE_CHECKING:
    from client_app.check.finding import Finding
    from client_app.hospital_folder import HospitalFolder
    from learning.data import Partition

Json = Annotated[bool, typer.Option("--json", help="Print one JSON line.")]
_SIGNS = {"fine": "✓", "warning": "!", "wrong": "✗"}


def check(
    folder: Folder = DEFAULT_FOLDER,
    json_output: Json = False,
    preview: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write images as the model will see them, as a PNG."),
    ] = None,
) -> None:
    """Check readiness, compare the data with the codebook, and suggest fixes."""
    with activity("checking", quiet=json_output):
        from client_app.check.checks import check_everything
        from client_app.check.data_report import DataReport, findings, report_on
        from client_app.hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    shown: list[dict[str, str]] = []
    report: DataReport | None = None
    partition: Partition | None = None
    with exit_on_error():
        for finding in _with_activity(check_everything(place), quiet=json_output):
            here = [finding]
            if finding.partition is not None:
                partition = finding.partition
                report = report_on(partition)
                here += findings(report)
            for one in here:
                shown.append({"subject": one.subject, "verdict": one.verdict, "text": one.text})
                if one.remedy:
                    shown[-1]["remedy"] = one.remedy
                if json_output:
                    continue
                echo(f"{_SIGNS[one.verdict]} {one.subject}: {one.text}")
                if one.partition is not None and report is not None:
                    echo("\n".join(f"    {line}".rstrip() for line in report.lines()))
                if one.remedy:
                    echo(f"    → {one.remedy}")
        if preview is not None:
            _write_preview(preview, place, partition)
    ready = all(one["verdict"] != "wrong" for one in shown)
    if json_output:
        data = None if report is None else report.as_dict()
        echo(json.dumps({"ready": ready, "findings": shown, "data": data}))
    raise typer.Exit(0 if ready else 2 if partition is None and _is_about_data(shown) else 1)


def status(folder: Folder = DEFAULT_FOLDER, json_output: Json = False) -> None:
    """Show ε so far and each experiment: its leg, the last contact, models sent and to whom."""
    from client_app.check.status import status as found
    from client_app.check.status import status_text
    from client_app.hospital_folder import HospitalFolder

    require_folder(folder)
    with exit_on_error(), activity("reading the audit log", quiet=json_output):
        here = found(HospitalFolder(folder))
    echo(json.dumps(here) if json_output else status_text(here))


def _with_activity(found: "Iterator[Finding]", *, quiet: bool) -> "Iterator[Finding]":
    """Yield the findings; while the next one is made, which may take minutes, show it."""
    while True:
        with activity("checking", quiet=quiet):
            finding = next(found, None)
        if finding is None:
            return
        yield finding


def _is_about_data(shown: list[dict[str, str]]) -> bool:
    """Return whether only the data are wrong."""
    wrong = {one["subject"] for one in shown if one["verdict"] == "wrong"}
    return wrong == {"data"}


def _write_preview(path: Path, folder: "HospitalFolder", partition: "Partition | None") -> None:
    from learning.data.preview import contact_sheet
    from operation import files
    from protocol.codebook import Images

    if partition is None or partition.train.features.ndim < 4:
        fail(2, "--preview is for images, and there are none that can be read")
    roster = folder.roster()
    codebook = folder.codebook(roster) if roster is not None else None
    images = codebook.images if codebook is not None else None
    form = images or Images(view="slice", size=(1, 1))  # the scale of folders without a codebook
    sheet = contact_sheet(partition.train.features, form.centre, form.scale)
    files.replace(path, sheet, mode=0o600)
    echo(f"{path} shows what the model will see; it contains patients' images.", err=True)
