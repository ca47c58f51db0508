"""A comparison on a researcher's own data: the same methods, with settings that fit the data."""

from pathlib import Path

from lab.experiments.definition import Central, Experiment, ExperimentError, Setting, Values
from learning.data import DataError, names
from learning.local_data import load_dataset, load_shares
from server_app.settings import Settings

# A laptop's images and network; the full setting leaves images in their own size.
_SMALL_SIDE = 32
_SMALL_NETWORK: Values = {"model": "mnist-cnn", "model-options": '{"filters": [8, 16]}'}
_TOGETHER = 20  # steps on all data together for each round, at most


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
    values: Values = {
        "dataset": name,
        "hospitals": hospitals,
        "samples": samples,
        "held-out": 0,
        "daisy-period": 1,
        "aggregation-period": 10,
        "server-learning-rate": 0.03,
    }
    if place:
        values["data-dir"] = str(Path(place).expanduser().resolve())
    small, large = _networks(values | changes)
    return Experiment(
        name=name,
        title=f"{Path(place).name or name}: {hospitals} hospitals with {samples} examples each",
        source="data of your own",
        choose="each-seed",
        laptop=_setting(values | {"rounds": 150} | small | changes),
        full=_setting(values | {"rounds": 1000} | large | changes),
    )


def _networks(values: Values) -> tuple[Values, Values]:
    """Return the network for a laptop and the one for more, and the images' size."""
    shape = load_dataset(_settings(values).local, 0).shape
    if len(shape) != 3:
        return {"model": "mlp"}, {"model": "mlp"}
    small = dict(_SMALL_NETWORK)
    if "image-size" not in values and max(shape[1:]) > _SMALL_SIDE:
        small["image-size"] = _SMALL_SIDE
    return small, {"model": "mnist-cnn" if max(shape[1:]) <= 2 * _SMALL_SIDE else "mri-cnn"}


def _setting(values: Values) -> Setting:
    held_out, validation = _validation(values)
    rounds, samples = int(values["rounds"]), int(values["samples"])
    return Setting(
        learning_rates=(0.02, 0.06, 0.2),
        settings=values | {"held-out": held_out},
        validation=validation,
        central=Central(
            steps=rounds * min(int(values["hospitals"]), _TOGETHER), batch_size=samples
        ),
        test_sample=1000,
        evaluations=20,
    )


def _validation(values: Values) -> tuple[int, Values]:
    """Return what hospitals hold out, and what else differs while a learning rate is chosen."""
    samples = int(values["samples"])
    extra = max(2, samples // 2)
    if _fits(values | {"held-out": extra}):
        return extra, {}
    kept_back = max(1, samples // 4)
    fewer: Values = {"samples": samples - kept_back, "held-out": kept_back}
    if samples < 2 or not _fits(values | fewer):
        _divide(values)  # says what is wrong
        raise ExperimentError(
            "there is nothing to choose a learning rate by: hospitals need 2 samples or more"
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
    load_shares(settings.local, settings.algorithm.hospitals, settings.algorithm.seed)


def _settings(values: Values) -> Settings:
    return Settings.from_run_config(values, source="command line")
