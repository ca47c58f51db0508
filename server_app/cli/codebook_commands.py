"""`feddc coordinator codebook`: what an example is, drafted, checked and signed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operation.terminal import activity, echo, fail

from .shared import DEFAULT_FOLDER, Folder, exit_on_experiment_error, open_study

if TYPE_CHECKING:
    from server_app.study.study_folder import Study


def codebook(
    study: Folder = DEFAULT_FOLDER,
    draft_from: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Draft a codebook from a sample table, or from a REDCap data dictionary.",
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="Column with the class, for a draft.")] = "label",
) -> None:
    """Check, show and sign the study's codebook.toml; with --from, draft one first."""
    with exit_on_experiment_error():
        place = open_study(study)
        if draft_from is not None:
            _draft(place, draft_from, label)
            return
        made = place.sign_codebook()
    if made is None:
        fail(
            2,
            f"{place.codebook_file}: no such file; write it, or draft one with "
            "`feddc coordinator codebook --from FILE`",
        )
    from protocol.codebook import codebook_text

    echo(
        f"{codebook_text(made)}\n\n"
        f"Signed. Send {place.for_hospitals} to every hospital (nothing in it is secret), and "
        "compare the fingerprint over the telephone.\nEach pins it with `feddc hospital join`."
    )


def _draft(place: "Study", source: Path, label: str) -> None:
    from learning.data.tables.draft import draft_codebook
    from operation import files
    from protocol.codebook import Codebook, CodebookError

    path = place.codebook_file
    if path.exists():
        fail(2, f"{path} already exists and is never overwritten: edit it, or move it away")
    with activity(f"reading {source}"):
        text = draft_codebook(source, label)
    files.write_new(path, text.encode(), mode=0o644)
    echo(f"The draft is in {path}. Review every line, then run `feddc coordinator codebook`.")
    try:
        Codebook.from_toml(text)
    except CodebookError as error:
        echo(f"Still to fill in: {error}")
