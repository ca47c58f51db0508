"""`feddc coordinator export`: a finished experiment's model for others."""

import json
from pathlib import Path
from typing import Annotated

import typer

from operation.terminal import activity, echo, fail

from . import completion
from .shared import DEFAULT_FOLDER, Folder, exit_on_experiment_error, open_study


def export(
    experiment: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Id of the experiment; default: the latest.",
            autocompletion=completion.experiments,
        ),
    ] = None,
    study: Folder = DEFAULT_FOLDER,
    to: Annotated[
        Path | None,
        typer.Option(help="Folder to write to.", show_default="export/ in the experiment's folder"),
    ] = None,
    without_onnx: Annotated[
        bool,
        typer.Option("--without-onnx", help="Write no ONNX file, which needs the extra [export]."),
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Export a model: safetensors, ONNX (compared with PyTorch first) and a model card."""
    with exit_on_experiment_error():
        place = open_study(study)
        from server_app.experiment import experiment_control

        chosen = experiment_control.pick(place, experiment)
        target = to or chosen.folder / "export"
        with activity("loading PyTorch", quiet=json_output) as now:
            # Imported only now: torch takes seconds.
            from learning.export.onnx_file import ExportError
            from server_app.export.exporter import CARD, export
            from server_app.export.model_card import MISSING

            now(f"exporting {chosen.id}")
            problem = ""
            try:
                written = export(place, chosen, target, onnx=not without_onnx)
            except ExportError as error:
                problem = str(error)
        if problem:
            fail(2, problem)
    if json_output:
        echo(json.dumps({"experiment": chosen.id, "files": [str(path) for path in written]}))
        return
    for path in written:
        echo(str(path))
    missing = (target / CARD).read_text(encoding="utf-8").count(MISSING)
    if missing:
        echo(
            f"{missing} entries of the model card are missing: set card-… in {place.settings_file} "
            "and export again.",
            err=True,
        )
