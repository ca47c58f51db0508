"""A comparison on a researcher's own data: the same methods, with settings that fit the data."""

from pathlib import Path

from lab.experiments.definition import Central, Experiment, ExperimentError, Setting, Values
from learning.data import Dataset, names
from learning.local_data import load_dataset, load_shares
from learning.settings import LocalSettings
from server_app.settings import Settings

_SMALL_IMAGE = 64  # pixels a side: up to here the smaller network is enough
_ROUNDS, _PERIOD = 200, 10


def own_data(
    dataset: str, hospitals: int | None, samples: int | None, changes: Values
) -> Experiment:
    """Return an experiment on `NAME` or `NAME:PATH`; `changes` are any further settings.

    Learning rates are chosen by examples that the hospitals do not train on: unused ones where
    there are enough, else a quarter of each hospital's own while the rate is chosen.
    """
    name, _, place = dataset.partition(":")
    if name not in names():
        raise ExperimentError(f"--dataset must be one of {', '.join(names())}, got {name!r}")
    if hospitals is None or samples is None:
        raise ExperimentError("--dataset needs --hospitals and --samples")
    values: Values = {"dataset": name, "hospitals": hospitals, "samples": samples}
    if place:
        values["data-dir"] = str(Path(place).expanduser().resolve())
    values |= {"rounds": _ROUNDS, "daisy-period": 1, "aggregation-period": _PERIOD}
    values = values | _model(_load(values | {"held-out": 0} | changes)) | changes
    held_out, validation = _validation(values, samples)
    size = Setting(
        learning_rates=(0.01, 0.03, 0.1),
        settings=values | {"held-out": held_out},
        validation=validation,
        central=Central(
            steps=int(values["rounds"]) * min(hospitals, 20), batch_size=max(1, samples)
        ),
        test_sample=1000,
    )
    return Experiment(
        name=name,
        title=f"{Path(place).name or name}: {hospitals} hospitals with {samples} examples each",
        source="data of your own",
        choose="each-seed",
        laptop=size,
        full=size,
    )


def _load(values: Values) -> Dataset:
    settings = Settings.from_run_config(values, source="command line")
    return load_dataset(settings.local, settings.algorithm.seed)


def _model(dataset: Dataset) -> Values:
    if len(dataset.shape) != 3:
        return {"model": "mlp"}
    small = max(dataset.shape[1:]) <= _SMALL_IMAGE
    return {"model": "mnist-cnn" if small else "mri-cnn"}


def _validation(values: Values, samples: int) -> tuple[int, Values]:
    """Return what hospitals hold out, and what else differs while a learning rate is chosen."""
    extra = max(2, samples // 2)
    if _fits(values | {"held-out": extra}):
        return extra, {}
    kept_back = max(1, samples // 4)
    fewer: Values = {"samples": samples - kept_back, "held-out": kept_back}
    if samples < 2 or not _fits(values | fewer):
        settings = Settings.from_run_config(values | {"held-out": 0}, source="command line")
        _shares(settings.local, settings.algorithm.hospitals)  # says what is wrong
        raise ExperimentError(
            "there is nothing to choose a learning rate by: hospitals need 2 samples or more"
        )
    return 0, fewer


def _fits(values: Values) -> bool:
    settings = Settings.from_run_config(values, source="command line")
    try:
        _shares(settings.local, settings.algorithm.hospitals)
    except ValueError:
        return False
    return True


def _shares(local: LocalSettings, hospitals: int) -> None:
    load_shares(local, hospitals, 0)
