"""Whether an experiment can be run here: what it needs, and what of its data is there."""

from lab.data_files import counted, part
from lab.experiments.definition import Experiment, ExperimentError, SettingName
from learning.data.sources import SOURCES, default_folder
from server_app.config.run_config import Settings

READY = "ready"


def state(experiment: Experiment) -> str:
    """Say whether it can be run here; files are looked for, not read."""
    if missing := _missing(experiment):
        return missing
    sizes: tuple[SettingName, ...] = ("laptop", "full")
    lacks = {size: lack for size in sizes if (lack := _lack(experiment, size))}
    some = _part(experiment)
    if not lacks:
        return f"{READY} ({some})" if some else READY
    able = [f"{size} {READY}" for size in sizes if size not in lacks]
    return "; ".join([*able, *(f"{size} {lack}" for size, lack in lacks.items())])


def check_ready(experiment: Experiment, size: SettingName) -> None:
    """Say what is missing before anything is started."""
    if missing := _missing(experiment):
        raise ExperimentError(f"{experiment.name}: {missing}")
    if lack := _lack(experiment, size):
        raise ExperimentError(
            f"{experiment.name}: the {size} setting {lack}; `feddc lab data` says where to get the "
            "rest"
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


def _lack(experiment: Experiment, size: SettingName) -> str:
    """Say what one size of it needs and does not have; nothing if that can't be told."""
    dataset = _dataset(experiment)
    there = counted(dataset, default_folder(dataset))
    wanted = _wanted(experiment, size)
    if there is None or wanted <= there[0]:
        return ""
    some = f" ({_part(experiment)})" if _part(experiment) else ""
    return f"needs {wanted:,} training examples, {there[0]:,} are there{some}"


def _wanted(experiment: Experiment, size: SettingName) -> int:
    """Return how many training examples the largest of its variants takes."""
    if (experiment.full if size == "full" else experiment.laptop) is None:
        return 0
    chosen = experiment.setting(size)
    most = 0
    for variant in experiment.variants_in(size):
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
