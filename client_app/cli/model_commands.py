"""Commands for final models: `evaluate`."""

import json
from typing import Annotated

import typer

from operation.terminal import echo

from .shared import DEFAULT_FOLDER, Folder, exit_on_error

Json = Annotated[bool, typer.Option("--json", help="Print one JSON line.")]


def evaluate(
    experiment: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="Id of a closed experiment; default: all without an evaluation."
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
        # Imported only now: torch takes seconds.
        from client_app.final_models.evaluation import evaluate_model
        from client_app.own_data import own_partition

        if experiment is not None:
            chosen = [models.find(experiment)]
        else:
            chosen = [one for one in models.folders() if not one.is_evaluated]
        if not chosen:
            echo("No final model waits for its evaluation.", err=json_output)
            return
        _limit_threads(configuration.data.threads)
        partition = own_partition(configuration)
        for one in chosen:
            text = evaluate_model(
                one, partition, device=configuration.data.device, alone=not without_alone
            )
            echo(json.dumps(one.evaluation) if json_output else f"{one.path}\n\n{text}")


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
