"""Check whether an experiment can run here: required features and available data."""

from typing import get_args

from lab.data_files import count_examples, part
from lab.experiments.definition import Experiment, ExperimentError, PresetName
from learning.data.sources import SOURCES, default_folder
from server_app.config.run_config import Settings

READY = "ready"


def state(experiment: Experiment) -> str:
    """Describe whether the experiment can run here; files are count_examples, not read."""
    if experiment.needs:
        return experiment.needs
    presets = [name for name in get_args(PresetName) if getattr(experiment, name) is not None]
    lacking = {preset: missing(experiment, preset) for preset in presets}
    if all(lacking.values()) and len(set(lacking.values())) == 1:
        return lacking[presets[0]]
    lacks = {
        preset: lack for preset in presets if (lack := lacking[preset] or _lack(experiment, preset))
    }
    some = _part(experiment, presets[0])
    if not lacks:
        return f"{READY} ({some})" if some else READY
    able = [f"{preset} {READY}" for preset in presets if preset not in lacks]
    return "; ".join([*able, *(f"{preset} {lack}" for preset, lack in lacks.items())])


def check_ready(experiment: Experiment, preset: PresetName) -> None:
    """Raise an error if something is missing, before anything is started."""
    if lack := missing(experiment, preset):
        raise ExperimentError(f"{experiment.name}: {lack}")
    if lack := _lack(experiment, preset):
        raise ExperimentError(
            f"{experiment.name}: the {preset} preset {lack}; `feddc lab data` shows where to get "
            "the rest"
        )


def missing(experiment: Experiment, preset: PresetName) -> str:
    """Describe the feature or data set that a preset lacks here; empty if there is none."""
    if experiment.needs:
        return experiment.needs
    values = experiment.settings | experiment.preset(preset).settings
    dataset = _dataset(experiment, preset)
    if dataset not in SOURCES or values.get("data-dir"):
        return ""
    folder = default_folder(dataset)
    if folder is not None and folder.is_dir():
        return ""
    source = SOURCES[dataset]
    needs = f"needs $FEDDC_DATA/{source.default}/ from {source.publisher}"
    return f"{needs}; {experiment.stand_in} needs no files" if experiment.stand_in else needs


def _lack(experiment: Experiment, preset: PresetName) -> str:
    """Describe the missing examples of a preset; empty if there are none or it is unknown."""
    dataset = _dataset(experiment, preset)
    there = count_examples(dataset, default_folder(dataset))
    wanted = _wanted(experiment, preset)
    if there is None or wanted <= there[0]:
        return ""
    there_is = _part(experiment, preset)
    some = f" ({there_is})" if there_is else ""
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


def _part(experiment: Experiment, preset: PresetName) -> str:
    dataset = _dataset(experiment, preset)
    there = count_examples(dataset, default_folder(dataset))
    return part(dataset, sum(there)) if there else ""


def _dataset(experiment: Experiment, preset: PresetName) -> str:
    values = experiment.settings | experiment.preset(preset).settings
    return str(values.get("dataset", "digits"))
