"""`feddc.simulate` and `feddc.open_run`: one run from a notebook or a script."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
from .run_result import RunResult

_QUIET_SECONDS, _DRAW_SECONDS = 2.0, 0.5


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
        with _shown_progress(folder) if progress else _nothing():
            simulate_in_process(checked, folder)
    return RunResult(folder)


def open_run(path: Path | str) -> RunResult:
    """Return the run in a folder, finished or not."""
    folder = Path(path)
    if not (folder / FILE_NAME).is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no {FILE_NAME}")
    return RunResult(folder)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _shown_progress(folder: Path) -> Iterator[None]:
    """Rewrite one line on stderr while a run takes longer than two seconds."""
    over = threading.Event()

    def show() -> None:
        file, history, width = EventFile(folder / FILE_NAME), RunHistory(), 0
        if over.wait(_QUIET_SECONDS):
            return
        while not over.wait(_DRAW_SECONDS):
            for event in file.new_events():
                history.add(event)
            text = progress_text(history)
            sys.stderr.write(f"\r{text:{width}}")
            sys.stderr.flush()
            width = len(text)
        sys.stderr.write(f"\r{'':{width}}\r")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
