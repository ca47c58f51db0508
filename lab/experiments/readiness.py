"""Check whether an experiment can run here: required features and available data."""

from typing import get_args

from lab.data_files import counted, part
from lab.experiments.definition import Experiment, ExperimentError, PresetName
from learning.data.sources import SOURCES, default_folder
from server_app.config.run_config import Settings

READY = "ready"


def state(experiment: Experiment) -> str:
    """Describe whether the experiment can run here; files are counted, not read."""
    if missing := _missing(experiment):
        return missing
    presets = [name for name in get_args(PresetName) if getattr(experiment, name) is not None]
    lacks = {preset: lack for preset in presets if (lack := _lack(experiment, preset))}
    some = _part(experiment)
    if not lacks:
        return f"{READY} ({some})" if some else READY
    able = [f"{preset} {READY}" for preset in presets if preset not in lacks]
    return "; ".join([*able, *(f"{preset} {lack}" for preset, lack in lacks.items())])


def check_ready(experiment: Experiment, preset: PresetName) -> None:
    """Raise an error if something is missing, before anything is started."""
    if missing := _missing(experiment):
        raise ExperimentError(f"{experiment.name}: {missing}")
    if lack := _lack(experiment, preset):
        raise ExperimentError(
            f"{experiment.name}: the {preset} preset {lack}; `feddc lab data` shows where to get "
            "the rest"
        )


def _missing(experiment: Experiment) -> str:
    if experiment.needs:
        return experiment.needs
    dataset = _dataset(experiment)
    if dataset not in SOURCES or experiment.settings.get("data-dir"):
        return ""
    folder = default_folder(dataset)
    if folder is not None and folder.is_dir():
        return ""
    source = SOURCES[dataset]
    missing = f"needs $FEDDC_DATA/{source.default}/ from {source.publisher}"
    return f"{missing}; {experiment.stand_in} needs no files" if experiment.stand_in else missing


def _lack(experiment: Experiment, preset: PresetName) -> str:
    """Describe the missing examples of a preset; empty if there are none or it is unknown."""
    dataset = _dataset(experiment)
    there = counted(dataset, default_folder(dataset))
    wanted = _wanted(experiment, preset)
    if there is None or wanted <= there[0]:
        return ""
    some = f" ({_part(experiment)})" if _part(experiment) else ""
    return f"needs {wanted:,} training examples, {there[0]:,} are there{some}"


def _wanted(experiment: Experiment, preset: PresetName) -> int:
    """Return the number of training examples that the largest variant needs."""
    if getattr(experiment, preset) is None:
        return 0
    chosen = experiment.preset(preset)
    most = 0
    for variant in experiment.variants_in(preset):
        values = Settings.defaults() | experiment.settings | chosen.settings | variant.settings
        if values["split"] == "natural" or values["data-dir"]:
            continue
        for each in (values, values | chosen.validation):
            of_one = int(each["examples"]) + int(each["held-out"])
            most = max(most, int(each["hospitals"]) * of_one)
    return most


def _part(experiment: Experiment) -> str:
    dataset = _dataset(experiment)
    there = counted(dataset, default_folder(dataset))
    return part(dataset, sum(there)) if there else ""


def _dataset(experiment: Experiment) -> str:
    return str(experiment.settings.get("dataset", "digits"))
