"""An experiment with real hospitals, as the ServerApp runs it: begun, or gone on with."""

import os
import shutil
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from learning.data import Examples
from learning.local_data import load_dataset
from learning.settings import LocalSettings, SettingsError
from learning.trainer import Network, Task
from protocol.randomness import SEED_BYTES, shared_init_seed
from strategies.journal import DiskJournal
from strategies.wrapped import check_wrapped

from .aggregators import build_aggregator, cohort_size
from .bell import find_bell
from .evaluation import Evaluator
from .experiment import Experiment
from .results import Recorder
from .run_strategy import run_strategy
from .settings import Settings
from .study import FOLDER_VARIABLE, Study, StudyError
from .task_settings import TaskSettings


def run_experiment(grid: Grid, name: str) -> dict[str, Any]:
    """Run the study's experiment of this name to its end; return its summary."""
    study = Study.open(_study_folder())
    experiment = Experiment.open(study, name)
    with experiment.locked():
        return _run(grid, study, experiment)


def check(settings: Settings, task: TaskSettings) -> None:
    """Build the network and the aggregator as the run will; SettingsError says what to change."""
    shapes, _ = load_task(task, seed=0)
    network = Network(settings.training, shapes, seed=0)
    try:
        check_wrapped(
            build_aggregator(settings, route_seed=bytes(SEED_BYTES)),
            parameters=sum(tensor.numel() for tensor in network.parameters.values()),
            cohort=cohort_size(settings),
            chained=settings.algorithm.daisy_period > 0 or settings.algorithm.fraction < 1,
        )
    except ValueError as error:
        raise SettingsError(f"aggregator = {settings.algorithm.aggregator}: {error}") from error


def load_task(settings: TaskSettings, *, seed: int) -> tuple[Task, Examples | None]:
    """Return what the model maps, and the coordinator's own test data."""
    if not settings.test_data:
        return Task(settings.shape, settings.classes), None
    local = LocalSettings.parse(
        {
            "dataset": settings.test_data,
            "data-dir": settings.test_data_dir,
            "label-column": settings.test_label_column,
        },
        source="settings.toml",
    )
    dataset = load_dataset(local, seed)
    task = Task(dataset.shape, len(dataset.classes))
    for key, given, found in (
        ("input-shape", settings.shape, task.shape),
        ("classes", settings.classes, task.classes),
    ):
        if given and given != found:
            raise SettingsError(f"{key} is {given}, but test-data have {found} (settings.toml)")
    return task, dataset.test


def _run(grid: Grid, study: Study, experiment: Experiment) -> dict[str, Any]:
    roster = experiment.roster()
    settings, task_settings = experiment.settings(len(roster.members))
    secrets = experiment.secrets()
    task, test = load_task(task_settings, seed=secrets.rehearsal or 0)
    seed = shared_init_seed(secrets.training_seed)
    evaluator = Evaluator(settings.training, task, test, seed=seed)
    recorder = Recorder(experiment.folder, settings, evaluator, goes_on=True)
    summary = run_strategy(
        grid,
        settings,
        task,
        recorder,
        roster=roster,
        coordinator=study.identity(),
        route_seed=secrets.route_seed,
        training_seed=secrets.training_seed,
        experiment=experiment.id,
        journal=DiskJournal(experiment.journal),
        newest_roster=study.roster,
        bell=find_bell(),
    )
    # Its models and the training seed have no further use, and are nobody's business.
    shutil.rmtree(experiment.journal, ignore_errors=True)
    return summary


def _study_folder() -> Path:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise StudyError(
            f"{FOLDER_VARIABLE} is not set: start the SuperLink with `feddc coordinator up`"
        )
    return Path(folder)
