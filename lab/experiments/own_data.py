"""Comparisons on the user's own data: the same methods, with settings that fit the data."""

from pathlib import Path

import numpy as np

from lab.experiments.changes import checked
from lab.experiments.definition import Central, Experiment, ExperimentError, Preset, Values
from learning.data import DataError, Dataset, names
from learning.data.sources import SOURCES
from learning.local_data import load_dataset, load_partitions
from server_app.config.run_config import Settings

# Image size and network of the laptop preset; the full preset uses `image-size` = 0.
_SMALL_SIDE = 32
_SMALL_NETWORK: Values = {"model": "mnist-cnn", "model-options": '{"filters": [8, 16]}'}
_POOLED_STEPS = 20  # most steps on the pooled data for each round
_RATES = (0.02, 0.06, 0.2)
# Largest class relative to an even distribution. Above it (60 % of two classes) accuracy would
# reward a model that always predicts that class, so balanced accuracy is used.
_EVEN_ENOUGH = 1.2


def own_data(
    dataset: str, hospitals: int | None, examples: int | None, changes: Values
) -> Experiment:
    """Return an experiment on `NAME` or `NAME:PATH`; `changes` are further settings.

    Learning rates are chosen on examples that the hospitals do not train on: unused ones where
    there are enough, else a quarter of each hospital's own, held out while the rate is chosen.
    """
    name, place = _place(dataset)
    if hospitals is None or examples is None:
        raise ExperimentError("--dataset needs --hospitals and --examples")
    changes, rates = checked(changes)
    values: Values = {
        "dataset": name,
        "hospitals": hospitals,
        "examples": examples,
        "daisy-period": 1,
        "aggregation-period": 10,
        "server-learning-rate": 0.03,
    }
    if place is not None:
        values["data-dir"] = str(place)
    loaded = load_dataset(_settings(values | changes).local, 0)
    small, large = _networks(values | changes, loaded.shape)
    return Experiment(
        name=name,
        title=f"{place.name if place else name}: {hospitals} hospitals with {examples} examples "
        "each",
        source="your own data",
        judged="balanced-accuracy" if _is_uneven(loaded) else "accuracy",
        choose="each-seed",
        laptop=_preset(values | {"rounds": 150} | small | changes, rates or _RATES),
        full=_preset(values | {"rounds": 1000} | large | changes, rates or _RATES),
    )


def _place(dataset: str) -> tuple[str, Path | None]:
    """Return the name of the data set, and its path if one is given."""
    name, _, text = dataset.partition(":")
    if name not in names():
        raise ExperimentError(f"--dataset must be one of {', '.join(names())}, got {name!r}")
    source = SOURCES.get(name)
    if not text:
        if source is not None and source.default is None:
            raise ExperimentError(f"{name} needs a path: --dataset {name}:PATH")
        return name, None
    place = Path(text).expanduser().resolve()
    if not place.exists():
        kind = "file or folder" if name == "csv" else "folder"
        raise ExperimentError(f"--dataset {dataset}: there is no such {kind}")
    if source is not None and name != "csv" and not place.is_dir():
        raise ExperimentError(f"--dataset {dataset}: this is a file, {name} needs a folder")
    return name, place


def _is_uneven(dataset: Dataset) -> bool:
    labels = np.concatenate([dataset.train.labels, dataset.test.labels])
    counts = np.bincount(labels, minlength=len(dataset.classes))
    return bool(counts.max() > _EVEN_ENOUGH * counts.mean())


def _networks(values: Values, shape: tuple[int, ...]) -> tuple[Values, Values]:
    """Return the settings of network and image size for the presets laptop and full."""
    if len(shape) != 3:
        model: Values = {"model": "cnn-3d" if len(shape) == 4 else "mlp"}
        return model, model
    small = dict(_SMALL_NETWORK)
    is_open = "image-size" not in values and "codebook" not in values
    if is_open and max(shape[1:]) > _SMALL_SIDE:
        small["image-size"] = _SMALL_SIDE
    return small, {"model": "mnist-cnn" if max(shape[1:]) <= 2 * _SMALL_SIDE else "mri-cnn"}


def _preset(values: Values, rates: tuple[float, ...]) -> Preset:
    held_out, validation = _validation(values, has_choice=len(rates) > 1)
    rounds, examples = int(values["rounds"]), int(values["examples"])
    return Preset(
        learning_rates=rates,
        settings=values | {"held-out": held_out},
        validation=validation,
        central=Central(
            steps=rounds * min(int(values["hospitals"]), _POOLED_STEPS), batch_size=examples
        ),
        test_sample=1000,
        evaluations=20,
    )


def _validation(values: Values, *, has_choice: bool) -> tuple[int, Values]:
    """Return the held-out examples per hospital, and the settings for choosing a learning rate."""
    examples = int(values["examples"])
    asked = values.get("held-out")
    extra = max(2, examples // 2) if asked is None else int(asked)
    if asked is not None and (extra or not has_choice):
        _divide(values)
        return extra, {}
    if extra and _fits(values | {"held-out": extra}):
        return extra, {}
    kept_back = max(1, examples // 4)
    fewer: Values = {"examples": examples - kept_back, "held-out": kept_back}
    _divide(values | {"held-out": 0})
    if not has_choice:
        return 0, {}
    if examples < 2 or not _fits(values | fewer):
        raise ExperimentError(
            "there is nothing to choose a learning rate by: hospitals need 2 examples or more, "
            "or name one rate with --set learning-rate=…"
        )
    return 0, fewer


def _fits(values: Values) -> bool:
    try:
        _divide(values)
    except DataError:
        return False
    return True


def _divide(values: Values) -> None:
    settings = _settings(values)
    load_partitions(settings.local, settings.algorithm.hospitals, settings.algorithm.seed)


def _settings(values: Values) -> Settings:
    return Settings.from_run_config(values, source="command line")
