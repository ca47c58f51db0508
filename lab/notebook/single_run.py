"""`feddc.simulate` and `feddc.open_run`: one run from a notebook or a script."""

from collections.abc import Callable
from logging import WARNING
from pathlib import Path
from typing import Any

from lab.flower.in_process import simulate_in_process
from lab.flower.simulate import default_run_dir
from operation.flower.logger import only_from
from operation.runs.event_file import FILE_NAME, EventFile
from operation.runs.history import RunHistory
from server_app.config.run_config import Settings, preflight
from server_app.experiment.progress import progress_text

from .own_parts import own_parts
from .progress_line import progress_line
from .run_result import RunResult


def simulate(
    *,
    model: Any = None,
    dataset: Any = None,
    run_dir: Path | str | None = None,
    progress: bool = True,
    **settings: Any,
) -> RunResult:
    """Run FedDC on simulated hospitals in this process and return the run.

    >>> run = feddc.simulate(dataset="digits", hospitals=10, aggregation_period=5)
    >>> run.test_accuracy, run.frame(), run.plot(), run.chain_map()

    The settings are those of docs/settings.md, with underscores. `model` is a name, a
    `torch.nn.Module`, or a function that returns one; its parameters are initialised anew for the
    seed. `dataset` is a name, a pair of arrays (features, labels), or a `torch` Dataset of pairs.
    Nothing is sent anywhere; results are in a new folder below `runs`, or in `run_dir`.
    """
    values = {key.replace("_", "-"): value for key, value in settings.items()}
    folder = Path(run_dir) if run_dir is not None else default_run_dir()
    with own_parts(model, dataset) as names, only_from(WARNING):
        checked = Settings.from_run_config(values | names, source="feddc.simulate")
        preflight(checked.replace(run_dir=str(folder)))
        with progress_line(_progress_of(folder), shown=progress):
            simulate_in_process(checked, folder)
    return RunResult(folder)


def open_run(path: Path | str) -> RunResult:
    """Return the run in a folder, finished or not."""
    folder = Path(path)
    if not (folder / FILE_NAME).is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no {FILE_NAME}")
    return RunResult(folder)


def _progress_of(folder: Path) -> Callable[[], str]:
    """Return a function that reads what a run has written since, and describes how far it is."""
    file, history = EventFile(folder / FILE_NAME), RunHistory()

    def text() -> str:
        for event in file.new_events():
            history.add(event)
        return progress_text(history)

    return text
