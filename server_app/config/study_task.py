"""The task of a real study: checked before an experiment, loaded to evaluate its models."""

from pathlib import Path

from learning.data import Examples
from learning.data.tables.files import find_table
from learning.data.tables.local_columns import LocalColumn
from learning.data.tables.rows import read_rows
from learning.local_data import load_dataset
from learning.settings import LocalSettings
from learning.trainer import TaskSpec
from operation.config import SettingsError
from protocol.codebook import Codebook
from protocol.model_bytes import ModelState
from server_app.experiment import first_model

from .network_check import check_network_and_aggregator
from .run_config import Settings
from .task_settings import TaskSettings


def check(
    settings: Settings,
    task: TaskSettings,
    given: Path | None = None,
    codebook: Codebook | None = None,
) -> None:
    """Build the network and the aggregator as the run will; SettingsError says what to change.

    `given` is a file with the first model.
    """
    shapes, _ = load_task(task, seed=0, codebook=codebook)
    network = check_network_and_aggregator(settings, shapes)
    if given is not None:
        first_model.read(given, ModelState(*network.arrays()))


def load_task(
    settings: TaskSettings, *, seed: int, codebook: Codebook | None = None
) -> tuple[TaskSpec, Examples | None]:
    """Return the task, and the coordinator's test data if it has any.

    Of a table that is read by the codebook, all rows are test data.
    """
    if not settings.test_data:
        return TaskSpec(settings.shape, settings.classes), None
    if codebook is not None and codebook.columns and settings.test_data == "csv":
        label = LocalColumn.parse({"column": settings.test_label_column}, source="settings.toml")
        own = {codebook.label: label} if settings.test_label_column != "label" else {}
        rows = read_rows(find_table(Path(settings.test_data_dir)), codebook, own)
        return TaskSpec(codebook.shape, len(codebook.classes)), rows.examples
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
            raise SettingsError(f"{key} is {given}, but test-data has {found} (settings.toml)")
    return task, dataset.test
