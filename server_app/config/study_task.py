"""What a real study's model maps: checked before an experiment is made, loaded to evaluate it."""

from pathlib import Path

from learning.data import Examples
from learning.local_data import load_dataset
from learning.settings import LocalSettings
from learning.trainer import Network, TaskSpec
from operation.config import SettingsError
from protocol.model_bytes import ModelState
from protocol.randomness import SEED_BYTES
from server_app.experiment import first_model
from strategies.wrapped.requirements import check_wrapped

from .aggregators import build_aggregator, cohort_size
from .run_config import Settings
from .task_settings import TaskSettings


def check(settings: Settings, task: TaskSettings, given: Path | None = None) -> None:
    """Build the network and the aggregator as the run will; SettingsError says what to change.

    `given` is the model that the experiment is to begin with.
    """
    shapes, _ = load_task(task, seed=0)
    network = Network(settings.training, shapes, seed=0)
    if given is not None:
        first_model.read(given, ModelState(*network.arrays()))
    try:
        check_wrapped(
            build_aggregator(settings, route_seed=bytes(SEED_BYTES)),
            parameters=sum(tensor.numel() for tensor in network.parameters.values()),
            cohort=cohort_size(settings),
            chained=settings.algorithm.daisy_period > 0 or settings.algorithm.fraction < 1,
        )
    except ValueError as error:
        raise SettingsError(f"aggregator = {settings.algorithm.aggregator}: {error}") from error


def load_task(settings: TaskSettings, *, seed: int) -> tuple[TaskSpec, Examples | None]:
    """Return what the model maps, and the coordinator's own test data."""
    if not settings.test_data:
        return TaskSpec(settings.shape, settings.classes), None
    local = LocalSettings.parse(
        {
            "dataset": settings.test_data,
            "data-dir": settings.test_data_dir,
            "label-column": settings.test_label_column,
        },
        source="settings.toml",
    )
    dataset = load_dataset(local, seed)
    task = TaskSpec(dataset.shape, len(dataset.classes))
    for key, given, found in (
        ("input-shape", settings.shape, task.shape),
        ("classes", settings.classes, task.classes),
    ):
        if given and given != found:
            raise SettingsError(f"{key} is {given}, but test-data have {found} (settings.toml)")
    return task, dataset.test
