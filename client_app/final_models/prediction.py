"""Predict with a final model, by the codebook that is stored with it."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from client_app.hospital_folder import FolderError
from learning.data import DataError
from learning.data.inputs import Inputs, read_images_of, read_rows_of
from learning.data.tables.local_columns import LocalColumns
from learning.evaluation.held_out_evaluation import predicted_classes
from operation.terminal import console, echo
from protocol.codebook import Codebook, CodebookError, Images

from .model_folder import ModelFolder
from .saved_network import SavedNetwork

Form = Literal["table", "csv", "json"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The probability of each class for each input."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    probabilities: NDArray[np.float64]

    @property
    def predicted(self) -> list[str]:
        """The most probable class of each input."""
        return [self.classes[k] for k in predicted_classes(self.probabilities)]


def predict(
    folder: ModelFolder,
    paths: Sequence[Path],
    *,
    columns: LocalColumns | None = None,
    expected: Path | None = None,
    device: str = "cpu",
) -> Predictions:
    """Read the inputs and predict their classes.

    `columns` are this hospital's own names. A codebook that is `expected` must be the model's.
    """
    saved = SavedNetwork(folder, device=device)
    if expected is not None:
        _check_codebook(saved.codebook, expected)
    inputs = _read(saved, paths, columns or {})
    return Predictions(inputs.names, saved.classes, saved.network.probabilities(inputs.features))


def show(found: Predictions, form: Form) -> None:
    """Print predictions."""
    if form == "json":
        echo(
            json.dumps(
                [
                    {
                        "input": name,
                        "prediction": predicted,
                        "probabilities": dict(zip(found.classes, row, strict=True)),
                    }
                    for name, predicted, row in _rows(found)
                ],
                ensure_ascii=False,
            )
        )
    elif form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["input", "prediction", *found.classes])
        writer.writerows([name, predicted, *row] for name, predicted, row in _rows(found))
        echo(text.getvalue().removesuffix("\n"))
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("input", "prediction", *found.classes):
            table.add_column(Text(title))
        for name, predicted, row in _rows(found):
            table.add_row(Text(name), Text(predicted), *(f"{chance:.3f}" for chance in row))
        console().print(table)


def _rows(found: Predictions) -> list[tuple[str, str, list[float]]]:
    chances = found.probabilities.tolist()
    return list(zip(found.names, found.predicted, chances, strict=True))


def _read(saved: SavedNetwork, paths: Sequence[Path], columns: LocalColumns) -> Inputs:
    codebook = saved.codebook
    if codebook is not None and codebook.columns:
        return read_rows_of(paths, codebook, columns)
    images = codebook.images if codebook is not None else _images(saved.descriptor.shape)
    if images is None:
        raise DataError(
            f"{saved.folder.path}: the study had no codebook, so rows were scaled by each "
            "hospital's own mean, which a new row does not have; agree on a codebook first"
        )
    return read_images_of(paths, images)


def _images(shape: tuple[int, ...]) -> Images | None:
    """Return the form of images without a codebook, as the loader of image folders has it."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        return None
    return Images(view="slice", size=shape[1:], channels=1 if shape[0] == 1 else 3)


def _check_codebook(own: Codebook | None, path: Path) -> None:
    """Refuse another codebook than the model's."""
    data = path.read_bytes()
    try:
        given = Codebook.from_toml(data.decode())
    except (CodebookError, UnicodeDecodeError):
        try:
            given = Codebook.from_content(data)
        except CodebookError as error:
            raise FolderError(f"{path}: {error}") from error
    if own is None:
        raise FolderError(f"{path}: the model was trained without a codebook")
    if given.digest != own.digest:
        raise FolderError(
            f"{path} has the digest {given.digest.hex()}, but the model was trained with the "
            f"codebook {own.digest.hex()}: another codebook gives other predictions"
        )
