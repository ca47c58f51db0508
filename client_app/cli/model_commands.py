"""Commands for final models: `evaluate`, `predict`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from operation.terminal import activity, echo

from . import completion
from .shared import DEFAULT_FOLDER, Folder, exit_on_error

Json = Annotated[bool, typer.Option("--json", help="Print one JSON line.")]


def evaluate(
    experiment: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Id of a closed experiment; default: all without an evaluation.",
            autocompletion=completion.models,
        ),
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    without_alone: Annotated[
        bool,
        typer.Option("--without-alone", help="Do not train a model on your data alone."),
    ] = False,
    json_output: Json = False,
) -> None:
    """Evaluate final models on your held-out examples, beside a model trained on your data alone.

    The agent does this by itself when an experiment has closed.
    """
    from client_app.configuration import Configuration
    from client_app.final_models.model_folder import FinalModels
    from client_app.hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    with exit_on_error():
        configuration = Configuration.read(place.configuration)
        models = FinalModels(place.models)
        with activity("loading PyTorch", quiet=json_output):
            # Imported only now: torch takes seconds.
            from client_app.final_models.evaluation import evaluate_model
            from client_app.hospital_data import load_partition

        if experiment is not None:
            chosen = [models.find(experiment)]
        else:
            chosen = [one for one in models.folders() if not one.is_evaluated]
        if not chosen:
            echo("No final model waits for its evaluation.", err=json_output)
            return
        _limit_threads(configuration.data.threads)
        for one in chosen:
            # By the model's codebook, which may be another one than that pinned now.
            codebook = one.codebook(one.descriptor())
            with activity("reading your data", quiet=json_output) as now:
                partition = load_partition(place, configuration, codebook)
                text = evaluate_model(
                    one,
                    partition,
                    device=configuration.data.device,
                    alone=not without_alone,
                    on_step=now,
                )
            echo(json.dumps(one.evaluation) if json_output else f"{one.path}\n\n{text}")


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Id of a closed experiment, or a model's folder.",
            autocompletion=completion.models,
        ),
    ],
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="INPUT…", help="Tables, images, or folders of images."),
    ],
    folder: Folder = DEFAULT_FOLDER,
    codebook: Annotated[
        Path | None,
        typer.Option(
            help="Refuse unless this codebook is the model's.", show_default="not compared"
        ),
    ] = None,
    csv_output: Annotated[
        bool, typer.Option("--csv", help="Print comma-separated values.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Predict classes with a final model; nothing is sent anywhere.

    For research, not for the treatment of patients.
    """
    from client_app.configuration import Configuration
    from client_app.final_models.model_folder import FinalModels
    from client_app.hospital_folder import HospitalFolder

    place = HospitalFolder(folder)
    with exit_on_error():
        configuration = Configuration.read(place.configuration)
        found = FinalModels(place.models).find(model)
        with activity("loading PyTorch", quiet=json_output) as now:
            from client_app.final_models.prediction import predict as compute
            from client_app.final_models.prediction import show

            now("reading the inputs and predicting")
            _limit_threads(configuration.data.threads)
            predictions = compute(
                found,
                inputs,
                columns=configuration.data.columns,
                expected=codebook,
                device=configuration.data.device,
            )
        show(predictions, "json" if json_output else "csv" if csv_output else "table")


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
